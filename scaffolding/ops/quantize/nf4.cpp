#include "scaffolding/ops/quantize/nf4.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/quantize/kernel.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf {

constinit KernelTable<BlockQuantize> block_quantize{"block_quantize"};
constinit KernelTable<BlockDequantize> block_dequantize{"block_dequantize"};

namespace {

int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

void check_blocksize(const char* op, int64_t b) {
  SF_CHECK(b >= 32 && b <= 4096 && (b & (b - 1)) == 0, op, ": blocksize must be a power of two from 32 to 4096, got ",
           b);
}

std::tuple<Tensor, Tensor> quantized(const char* op, const Tensor& input, int64_t block, BlockFormat format) {
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  check_blocksize(op, block);
  autograd::NoGrad off;
  int64_t n = input.numel();
  Tensor codes = format == BlockFormat::Nf4 ? empty({(n + 1) / 2, 1}, kUInt8, input.device())
                                            : empty(input.shape(), kUInt8, input.device());
  Tensor absmax = empty({blocks_of(n, block)}, kFloat32, input.device());
  if (n == 0) return {codes, absmax};
  Tensor x = contiguous(to_dtype(input.detach(), kFloat32));
  BlockQuantize q{x, codes, absmax, block, format};
  auto kernel = block_quantize.find(input.device(), q);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", input.device());
  kernel(q);
  return {codes, absmax};
}

Tensor statistics(const char* op, const char* name, const Tensor& t, int64_t want, const Tensor& like) {
  check_defined(op, name, t);
  check_same_device(op, like, t);
  SF_CHECK(t.numel() == want, op, ": ", name, " must have ", want, " element(s), got ", t.shape());
  return contiguous(is_floating(t.dtype()) ? to_dtype(t, kFloat32) : t);
}

Tensor dequantized(const char* op, const Tensor& codes, const Tensor& absmax, const Shape& size, DType dtype,
                   int64_t block, const Tensor& nested, const Tensor& offset, BlockFormat format) {
  check_defined(op, "input", codes);
  check_blocksize(op, block);
  SF_CHECK_AS(TypeError, codes.dtype() == kUInt8, op, ": input must be uint8, got ", codes.dtype());
  SF_CHECK_AS(TypeError, is_floating(dtype) && !is_float8(dtype), op,
              ": dtype must be float32, float64, bfloat16 or float16, got ", dtype);
  autograd::NoGrad off;
  bool wide = dtype == kFloat64;
  Tensor y = empty(size, wide ? kFloat32 : dtype, codes.device());
  int64_t n = y.numel(), blocks = blocks_of(n, block), want = format == BlockFormat::Nf4 ? (n + 1) / 2 : n;
  SF_CHECK(codes.numel() == want, op, ": a tensor of ", size, " needs ", want, " bytes of codes, got ", codes.shape());
  check_defined(op, "absmax", absmax);
  bool floats = is_floating(absmax.dtype());
  SF_CHECK_AS(TypeError, floats || absmax.dtype() == kUInt8, op,
              ": absmax must be floating, or uint8 with nested_absmax and offset, got ", absmax.dtype());
  SF_CHECK(floats ? !nested && !offset : nested && offset, op,
           ": nested_absmax and offset belong to an absmax of uint8, got absmax of ", absmax.dtype());
  Tensor bytes = contiguous(codes), scales = statistics(op, "absmax", absmax, blocks, codes), inner, shift;
  if (nested) inner = statistics(op, "nested_absmax", nested, blocks_of(blocks, kNestedBlock), codes);
  if (offset) shift = statistics(op, "offset", offset, 1, codes);
  if (n > 0) {
    BlockDequantize d{bytes, scales, {}, {}, y, block, format};
    if (inner) d.nested = inner, d.offset = shift;
    auto kernel = block_dequantize.find(codes.device(), d);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", codes.device());
    kernel(d);
  }
  return wide ? to_dtype(y, dtype) : y;
}

}  // namespace

std::tuple<Tensor, Tensor> quantize_nf4(const Tensor& input, int64_t blocksize) {
  return quantized("quantize_nf4", input, blocksize, BlockFormat::Nf4);
}
std::tuple<Tensor, Tensor> quantize_blockwise(const Tensor& input, int64_t blocksize) {
  return quantized("quantize_blockwise", input, blocksize, BlockFormat::Dynamic);
}
Tensor dequantize_nf4(const Tensor& input, const Tensor& absmax, const Shape& size, std::optional<DType> dtype,
                      int64_t blocksize, const Tensor& nested_absmax, const Tensor& offset) {
  return dequantized("dequantize_nf4", input, absmax, size, dtype.value_or(kFloat32), blocksize, nested_absmax, offset,
                     BlockFormat::Nf4);
}
Tensor dequantize_blockwise(const Tensor& input, const Tensor& absmax, std::optional<DType> dtype, int64_t blocksize) {
  check_defined("dequantize_blockwise", "input", input);
  return dequantized("dequantize_blockwise", input, absmax, input.shape(), dtype.value_or(kFloat32), blocksize, {}, {},
                     BlockFormat::Dynamic);
}

Tensor linear_nf4(const Tensor& input, const Tensor& weight, const Tensor& absmax, const Tensor& nested_absmax,
                  const Tensor& offset, const Tensor& bias, int64_t out_features, int64_t blocksize) {
  check_defined("linear_nf4", "input", input);
  check_floating("linear_nf4", "input", input);
  SF_CHECK(input.ndim() >= 1, "linear_nf4: needs input [..., K], got a scalar");
  autograd::refuse_gradient("linear_nf4: a weight in four bits", {absmax, nested_absmax, offset});
  SF_CHECK(out_features >= 0, "linear_nf4: out_features must not be negative, got ", out_features);
  check_same_device("linear_nf4", input, weight);
  int64_t k = input.shape().back(), n = out_features, rows = 1;
  for (int64_t i = 0; i + 1 < input.ndim(); ++i) rows *= input.shape()[i];
  auto whole = [=, dtype = input.dtype()] {
    return dequantized("linear_nf4", weight, absmax, {n, k}, dtype, blocksize, nested_absmax, offset, BlockFormat::Nf4);
  };
  Tensor y;
  {
    autograd::NoGrad off;
    y = linear(input, whole(), bias);
  }
  return autograd::record(
      "linear_nf4", y, {input, bias},
      [=, shape = input.shape(), nx = input.requires_grad(), nb = bias.requires_grad()](const Tensor& dy) {
        Tensor g = dy.reshape({rows, n});
        return Tensors{nx ? matmul(g, whole()).reshape(shape) : Tensor(), nb ? sum(g, Shape{0}) : Tensor()};
      });
}

SF_OP(quantize_nf4, "input, blocksize=64")
    .doc("NormalFloat4 codes, two to a byte, and the largest magnitude of each block; bitsandbytes' layout.")
    .no_gradient()
    .kernels(block_quantize);
SF_OP(dequantize_nf4, "input, absmax, size, dtype=None, blocksize=64, nested_absmax=None, offset=None")
    .doc("The tensor of that size behind NormalFloat4 codes; absmax itself may be quantised (nested_absmax, offset).")
    .no_gradient()
    .kernels(block_dequantize);
SF_OP(quantize_blockwise, "input, blocksize=256")
    .doc("Codes of bitsandbytes' signed dynamic map of eight bits, and the largest magnitude of each block.")
    .no_gradient()
    .kernels(block_quantize);
SF_OP(dequantize_blockwise, "input, absmax, dtype=None, blocksize=256")
    .doc("The tensor behind the codes of quantize_blockwise.")
    .no_gradient()
    .kernels(block_dequantize);
SF_OP(linear_nf4, "input, weight, absmax, nested_absmax, offset, bias, out_features, blocksize=64")
    .doc(
        "linear with a frozen weight in NormalFloat4, which is dequantised for the call and again in the backward "
        "pass.")
    .kernels(block_dequantize, gemm);

}  // namespace sf
