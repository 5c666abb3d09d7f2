#include "scaffolding/ops/quantize/block_codes.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/quantized_piece.h"
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

Tensor statistics(const char* op, const char* name, const Tensor& t, int64_t want, const Tensor& like) {
  check_defined(op, name, t);
  check_same_device(op, like, t);
  SF_CHECK(t.numel() == want, op, ": ", name, " must have ", want, " element(s), got ", t.shape());
  return contiguous(is_floating(t.dtype()) ? to_dtype(t, kFloat32) : t);
}

// The same, dense and of the kernels' dtypes.
BlockCodes checked(const char* op, const BlockCodes& w, const Shape& size) {
  check_defined(op, "input", w.codes);
  check_blocksize(op, w.block);
  SF_CHECK_AS(TypeError, w.codes.dtype() == kUInt8, op, ": input must be uint8, got ", w.codes.dtype());
  const int64_t n = numel(size), blocks = blocks_of(n, w.block), want = has_nibbles(w.format) ? (n + 1) / 2 : n;
  SF_CHECK(w.codes.numel() == want, op, ": a tensor of ", size, " needs ", want, " bytes of codes, got ",
           w.codes.shape());
  check_defined(op, "absmax", w.absmax);
  const bool floats = is_floating(w.absmax.dtype());
  SF_CHECK_AS(TypeError, floats || w.absmax.dtype() == kUInt8, op,
              ": absmax must be floating, or uint8 with nested_absmax and offset, got ", w.absmax.dtype());
  SF_CHECK(floats ? !w.nested && !w.offset : w.nested && w.offset, op,
           ": nested_absmax and offset belong to an absmax of uint8, got absmax of ", w.absmax.dtype());
  BlockCodes out = w;
  out.codes = contiguous(w.codes);
  out.absmax = statistics(op, "absmax", w.absmax, blocks, w.codes);
  if (w.nested) out.nested = statistics(op, "nested_absmax", w.nested, blocks_of(blocks, kNestedBlock), w.codes);
  if (w.offset) out.offset = statistics(op, "offset", w.offset, 1, w.codes);
  return out;
}

}  // namespace

std::tuple<Tensor, Tensor> quantize_blocks(const char* op, const Tensor& input, BlockFormat format, int64_t block) {
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  check_blocksize(op, block);
  autograd::NoGrad off;
  int64_t n = input.numel();
  Tensor codes = has_nibbles(format) ? empty({(n + 1) / 2, 1}, kUInt8, input.device())
                                     : empty(input.shape(), kUInt8, input.device());
  Tensor absmax = empty({blocks_of(n, block)}, kFloat32, input.device());
  if (n == 0) return {codes, absmax};
  const Tensor all = contiguous(input.detach()), flat = all.view({n}), bytes = codes.view({codes.numel()});
  const int64_t packed = has_nibbles(format) ? 2 : 1;
  for (int64_t at = 0; at < n; at += kQuantizedPiece) {
    const int64_t count = std::min(kQuantizedPiece, n - at);
    const Tensor x = contiguous(to_dtype(flat.narrow(0, at, count), kFloat32)),
                 to = bytes.narrow(0, at / packed, (count + packed - 1) / packed),
                 scales = absmax.narrow(0, at / block, blocks_of(count, block));
    BlockQuantize q{x, to, scales, block, format};
    auto kernel = block_quantize.find(input.device(), q);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", input.device());
    kernel(q);
  }
  return {codes, absmax};
}

Tensor dequantize_blocks(const char* op, const BlockCodes& given, const Shape& size, DType dtype) {
  SF_CHECK_AS(TypeError, is_floating(dtype) && !is_float8(dtype), op,
              ": dtype must be float32, float64, bfloat16 or float16, got ", dtype);
  autograd::NoGrad off;
  const BlockCodes w = checked(op, given, size);
  const bool wide = dtype == kFloat64;
  Tensor y = empty(size, wide ? kFloat32 : dtype, w.codes.device());
  if (y.numel() > 0) {
    BlockDequantize d{w.codes, w.absmax, {}, {}, y, w.block, w.format};
    if (w.nested) d.nested = w.nested, d.offset = w.offset;
    auto kernel = block_dequantize.find(w.codes.device(), d);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", w.codes.device());
    kernel(d);
  }
  return wide ? to_dtype(y, dtype) : y;
}

Tensor linear_of_blocks(const char* op, const Tensor& input, const BlockCodes& w, const Tensor& bias,
                        int64_t out_features, const ProductEnd& end) {
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  SF_CHECK(input.ndim() >= 1, op, ": needs input [..., K], got a scalar");
  autograd::refuse_gradient((std::string(op) + ": a weight in four bits").c_str(), {w.absmax, w.nested, w.offset});
  SF_CHECK(out_features >= 0, op, ": out_features must not be negative, got ", out_features);
  check_same_device(op, input, w.codes);
  const int64_t k = input.shape().back(), n = out_features;
  check_shape(op, "bias", bias, {n});
  auto whole = [=, dtype = input.dtype()] { return dequantize_blocks(op, w, {n, k}, dtype); };
  auto on_the_way = [&](CodedProduct& p) {
    const BlockCodes c = checked(op, w, {n, k});
    p.codes = c.codes, p.scales = c.absmax, p.block = c.block;
    if (c.nested) p.nested = c.nested, p.offset = c.offset;
    p.format = c.format == BlockFormat::Nf4 ? CodedFormat::Nf4 : CodedFormat::Fp4;
    return coded_product_into(p);
  };
  return linear_of_codes(op, input, bias, n, whole, on_the_way, end);
}

}  // namespace sf
