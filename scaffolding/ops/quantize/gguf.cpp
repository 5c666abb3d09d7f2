#include "scaffolding/ops/quantize/gguf.h"

#include <algorithm>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/gguf_encode.h"
#include "scaffolding/ops/quantize/gguf_int8.h"
#include "scaffolding/ops/quantize/gguf_kernel.h"
#include "scaffolding/ops/quantize/product_end.h"
#include "scaffolding/ops/quantize/quantized_piece.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf {

constinit KernelTable<GgufDecode> gguf_decode{"gguf_decode"};
constinit KernelTable<GgufProduct> gguf_product{"gguf_product"};

Tensor quantize_gguf(const Tensor& input, const std::string& format) {
  const char* op = "quantize_gguf";
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  const GgufFormat& f = gguf_blocks(op, format);
  SF_CHECK(input.ndim() >= 1 && input.shape().back() % f.block == 0, op, ": rows of ", std::string(f.name),
           " are whole blocks of ", f.block, ", got input ", input.shape());
  Shape size = input.shape();
  size.back() = size.back() / f.block * f.bytes;
  if (input.device().is_meta()) return empty(size, kUInt8, input.device());
  autograd::NoGrad off;
  const Tensor all = contiguous(to_device(input.detach(), Device())), flat = all.view({all.numel()});
  Tensor blocks = empty(size, kUInt8);
  // Piece by piece, so that a weight is not whole in float32 beside itself.
  for (int64_t at = 0; at < flat.numel(); at += kQuantizedPiece) {
    const int64_t n = std::min(kQuantizedPiece, flat.numel() - at);
    const Tensor x = contiguous(to_dtype(flat.narrow(0, at, n), kFloat32));
    SF_CHECK(encode_gguf(*f.blocks, static_cast<const float*>(x.data_ptr()), n,
                         static_cast<uint8_t*>(blocks.data_ptr()) + at / f.block * f.bytes),
             op, ": input has numbers that are not finite, or too large for ", std::string(f.name),
             "'s float16 scales");
  }
  return to_device(blocks, input.device());
}

Tensor dequantize_gguf(const Tensor& input, const std::string& format, const Shape& size, std::optional<DType> dtype) {
  const char* op = "dequantize_gguf";
  check_defined(op, "input", input);
  SF_CHECK_AS(TypeError, input.dtype() == kUInt8, op, ": input must be uint8, got ", input.dtype());
  const GgufFormat& f = gguf_blocks(op, format);
  const DType t = dtype.value_or(kFloat32);
  SF_CHECK_AS(TypeError, is_floating(t) && !is_float8(t), op,
              ": dtype must be float32, float64, bfloat16 or float16, got ", t);
  autograd::NoGrad off;
  Tensor y = empty(size, t == kFloat64 ? kFloat32 : t, input.device());
  SF_CHECK(y.numel() % f.block == 0 && input.numel() == y.numel() / f.block * f.bytes, op, ": a tensor of ", size,
           " needs ", y.numel() / f.block * f.bytes, " bytes in whole blocks of ", f.block, " as ", std::string(f.name),
           ", got ", input.shape());
  if (y.numel() > 0) {
    const Tensor blocks = contiguous(input);
    const GgufDecode d{blocks, y, *f.blocks};
    auto kernel = gguf_decode.find(input.device(), d);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", input.device());
    kernel(d);
  }
  return to_dtype(y, t);
}

Tensor linear_gguf(const Tensor& input, const Tensor& weight, const Tensor& bias, const std::string& format,
                   const std::string& activation, const Tensor& residual, bool dynamic) {
  const char* op = "linear_gguf";
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  check_defined(op, "weight", weight);
  check_same_device(op, input, weight);
  const GgufFormat& f = gguf_blocks(op, format);
  const Activation act = pointwise_activation(op, activation);
  SF_CHECK_AS(TypeError, weight.dtype() == kUInt8, op, ": weight must be blocks in uint8, got ", weight.dtype());
  SF_CHECK(input.ndim() >= 1 && weight.ndim() == 2 && input.shape().back() % f.block == 0 &&
               weight.size(1) == input.shape().back() / f.block * f.bytes,
           op, ": needs input [..., K] and weight [N, K / ", f.block, " * ", f.bytes, "] of ", std::string(f.name),
           ", got ", input.shape(), " and ", weight.shape());
  const int64_t k = input.shape().back(), n = weight.size(0);
  check_shape(op, "bias", bias, {n});
  check_same_device(op, input, bias);
  Shape out = input.shape();
  out.back() = n;
  check_shape(op, "residual", residual, out);
  check_same_device(op, input, residual);
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < input.ndim(); ++i) rows *= input.shape()[i];
  auto whole = [=, dtype = input.dtype()] { return dequantize_gguf(weight, format, {n, k}, dtype); };
  // A gradient takes the steps one by one, so that each can be differentiated.
  const bool learns = autograd::any_requires_grad({input, bias, residual});
  Tensor y;
  {
    autograd::NoGrad off;
    if (dynamic && input.numel() > 0 && n > 0) {
      y = linear_gguf_in_int8(input, weight, bias, f);
    } else if (input.numel() > 0 && n > 0 && input.dtype() != kFloat64) {
      const Tensor x = contiguous(input).view({rows, k}), blocks = contiguous(weight);
      Tensor b = bias && bias.dtype() != kFloat32 ? to_dtype(bias, input.dtype()) : bias, r;
      if (b) b = contiguous(b);
      if (residual && !learns) r = contiguous(to_dtype(residual, input.dtype())).view({rows, n});
      y = empty(out, input.dtype(), input.device());
      const Tensor c = y.view({rows, n});
      GgufProduct g{x, blocks, {}, {}, c, *f.blocks, learns ? Activation::None : act};
      if (b) g.bias = b;
      if (r) g.residual = r;
      auto kernel = gguf_product.find(input.device(), g);
      SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", input.device(),
                  "; dequantise the weight, or keep the layer on the CPU");
      kernel(g);
      if (!learns) return y;
    } else {
      y = linear(input, whole(), bias);
    }
  }
  y = autograd::record(
      op, y, {input, bias},
      [=, shape = input.shape(), nx = input.requires_grad(), nb = bias && bias.requires_grad()](const Tensor& dy) {
        const Tensor g = dy.reshape({rows, n});
        return Tensors{nx ? matmul(g, whole()).reshape(shape) : Tensor(), nb ? sum(g, Shape{0}) : Tensor()};
      });
  return activated(residual ? y + residual : y, act);
}

SF_OP(quantize_gguf, "input, format")
    .doc(
        "Rows of numbers in the blocks of a GGUF format: Q8_0, Q4_K and their like; the gguf package's bytes for the "
        "simple ones.")
    .no_gradient();
SF_OP(dequantize_gguf, "input, format, size, dtype=None")
    .doc("The tensor of that size behind the blocks of a GGUF format.")
    .no_gradient()
    .kernels(gguf_decode);
SF_OP(linear_gguf, "input, weight, bias, format, activation='none', residual=None, dynamic=False")
    .doc(
        "linear with a frozen weight in the blocks of a GGUF format, which are decoded while they are multiplied; with "
        "dynamic the input becomes int8 too, with exact sums within blocks.")
    .kernels(gguf_product, gguf_int8_product, gguf_decode, gemm);

}  // namespace sf
