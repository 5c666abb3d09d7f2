#include "scaffolding/ops/quantize/fp8.h"

#include <algorithm>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/kernel.h"
#include "scaffolding/ops/quantize/quantized_piece.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Fp8Quantize> fp8_quantize{"fp8_quantize"};
constinit KernelTable<Fp8Dequantize> fp8_dequantize{"fp8_dequantize"};
constinit KernelTable<ScaledProduct> scaled_product{"scaled_product"};

namespace {

double largest(DType t) { return t == kFloat8E4M3 ? 448 : 57344; }

void check_float8(const char* op, const char* name, const Tensor& t) {
  check_defined(op, name, t);
  SF_CHECK_AS(TypeError, is_float8(t.dtype()), op, ": ", name, " must be float8_e4m3fn or float8_e5m2, got ",
              t.dtype());
}

// As [rows, columns of the last dimension].
Tensor as_rows(const Tensor& x) {
  return x.ndim() == 0 ? x.reshape({1, 1})
                       : x.reshape({x.numel() / std::max<int64_t>(x.shape().back(), 1), x.shape().back()});
}

// most / largest, and 1 where most is 0.
Tensor scale_for(const Tensor& most, DType t) {
  Tensor zero = zeros({}, kFloat32, most.device());
  return where(gt(most, zero), most / scalar_tensor(largest(t), kFloat32, most.device()),
               ones({}, kFloat32, most.device()));
}

Tensor composed_quantize(const Tensor& x, const Tensor& scale, DType t) {
  Tensor limits = to_dtype(x, kFloat32) / scale;
  return to_dtype(clamp(limits, -largest(t), largest(t)), t);
}

}  // namespace

std::tuple<Tensor, Tensor> quantize_fp8(const Tensor& input, std::optional<DType> dtype, bool per_row) {
  const char* op = "quantize_fp8";
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  DType t = dtype.value_or(kFloat8E4M3);
  SF_CHECK_AS(TypeError, is_float8(t), op, ": dtype must be float8_e4m3fn or float8_e5m2, got ", t);
  SF_CHECK(!per_row || input.ndim() > 0, op, ": per_row needs a last dimension, got a scalar");
  autograd::NoGrad off;
  Tensor x = contiguous(input.detach());
  Shape sizes = per_row ? x.shape() : Shape{};
  if (per_row) sizes.back() = 1;
  if (x.numel() == 0) return {empty(x.shape(), t, x.device()), ones(sizes, kFloat32, x.device())};
  Tensor scale = empty(sizes, kFloat32, x.device()), q = empty(x.shape(), t, x.device());
  Tensor rows = as_rows(x), q_rows = q.view(rows.shape()), flat = scale.view({scale.numel()});
  if (per_row && x.device().is_cpu() && x.numel() > kQuantizedPiece && rows.size(0) > 1) {
    const int64_t each = std::max<int64_t>(1, kQuantizedPiece / rows.size(1));
    for (int64_t r = 0; r < rows.size(0); r += each) {
      const int64_t n = std::min(each, rows.size(0) - r);
      auto [part, scales] = quantize_fp8(rows.narrow(0, r, n), t, true);
      q_rows.narrow(0, r, n).copy_(part);
      flat.narrow(0, r, n).copy_(scales.view({n}));
    }
    return {q, scale};
  }
  bool measures = per_row || rows.size(0) == 1;
  if (!measures) {
    Tensor most = to_dtype(amax(abs(rows)), kFloat32);
    scale.copy_(scale_for(most, t));
  }
  Fp8Quantize args{rows, q_rows, flat, measures};
  if (auto kernel = fp8_quantize.find(x.device(), args)) {
    kernel(args);
    return {q, scale};
  }
  if (measures) {
    Tensor most = to_dtype(per_row ? amax(abs(x), Shape{-1}, true) : amax(abs(x)), kFloat32);
    scale.copy_(scale_for(most, t));
  }
  return {composed_quantize(x, scale, t), scale};
}

Tensor dequantize_fp8(const Tensor& input, const Tensor& scale, std::optional<DType> dtype) {
  const char* op = "dequantize_fp8";
  check_float8(op, "input", input);
  check_defined(op, "scale", scale);
  check_floating(op, "scale", scale);
  check_same_device(op, input, scale);
  DType t = dtype.value_or(kFloat32);
  SF_CHECK_AS(TypeError, is_floating(t) && !is_float8(t), op,
              ": dtype must be float32, float64, bfloat16 or float16, got ", t);
  Shape rows = input.shape();
  if (!rows.empty()) rows.back() = 1;
  SF_CHECK(scale.numel() == 1 || scale.shape() == rows, op, ": scale must have one element, or shape ", rows,
           " for each row, got ", scale.shape());
  autograd::NoGrad off;
  Tensor s = contiguous(to_dtype(scale.detach(), kFloat32)), q = contiguous(input);
  Tensor y = empty(input.shape(), t == kFloat64 ? kFloat32 : t, input.device());
  if (y.numel() == 0) return to_dtype(y, t);
  Tensor q_rows = as_rows(q), y_rows = y.view(q_rows.shape()), flat = s.view({s.numel()});
  Fp8Dequantize args{q_rows, flat, y_rows};
  if (auto kernel = fp8_dequantize.find(input.device(), args)) {
    kernel(args);
    return to_dtype(y, t);
  }
  return to_dtype(to_dtype(q, kFloat32) * s, t);
}

Tensor scaled_mm(const Tensor& input, const Tensor& mat2, const Tensor& scale_a, const Tensor& scale_b,
                 const Tensor& bias, std::optional<DType> out_dtype, bool use_fast_accum) {
  const char* op = "scaled_mm";
  check_float8(op, "input", input);
  check_float8(op, "mat2", mat2);
  SF_CHECK(input.ndim() == 2 && mat2.ndim() == 2 && input.size(1) == mat2.size(0), op,
           ": needs input [M, K] and mat2 [K, N], got ", input.shape(), " and ", mat2.shape());
  int64_t m = input.size(0), k = input.size(1), n = mat2.size(1);
  DType t = out_dtype.value_or(kBFloat16);
  SF_CHECK_AS(TypeError, is_floating(t) && !is_float8(t), op,
              ": out_dtype must be float32, float64, bfloat16 or float16, got ", t);
  auto scale = [&](const char* name, const Tensor& s, const Shape& each) {
    check_defined(op, name, s);
    check_floating(op, name, s);
    check_same_device(op, input, s);
    SF_CHECK(s.numel() == 1 || s.shape() == each, op, ": ", name, " must have one element or shape ", each, ", got ",
             s.shape());
    return contiguous(to_dtype(s.detach(), kFloat32));
  };
  Tensor a = scale("scale_a", scale_a, {m, 1}), b = scale("scale_b", scale_b, {1, n});
  check_same_device(op, input, mat2);
  check_shape(op, "bias", bias, {n});
  check_same_device(op, input, bias);
  autograd::NoGrad off;
  if (m > 0 && n > 0 && k > 0 && t != kFloat64) {
    Tensor y = empty({m, n}, t, input.device()), x = contiguous(input), flat_a = a.view({a.numel()}),
           flat_b = b.view({b.numel()});
    Tensor shift = bias ? contiguous(to_dtype(bias.detach(), t == kFloat32 ? kBFloat16 : t)) : bias;
    bool exact = !bias || t != kFloat32 || bias.dtype() == kBFloat16;  // cuBLASLt adds biases of 16 bits only
    ScaledProduct args{x, mat2, flat_a, flat_b, {}, y};
    if (bias && exact) args.bias = shift;
    args.fast_accumulation = use_fast_accum;
    if (auto kernel = scaled_product.find(input.device(), args)) {
      kernel(args);
      return bias && !exact ? y + to_dtype(bias.detach(), t) : y;
    }
  }
  Tensor product = matmul(to_dtype(input, kFloat32), to_dtype(mat2, kFloat32)) *
                   (a.numel() == 1 ? a.reshape({1, 1}) : a) * (b.numel() == 1 ? b.reshape({1, 1}) : b);
  return to_dtype(bias ? product + to_dtype(bias.detach(), kFloat32) : product, t);
}

Tensor linear_fp8_with(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias, bool dynamic,
                       const ProductEnd& end) {
  const char* op = "linear_fp8";
  check_float8(op, "weight", weight);
  check_defined(op, "scale", scale);
  check_coded_linear(op, input, weight, bias);
  autograd::refuse_gradient("linear_fp8: a weight in float8", {scale});
  const int64_t n = weight.size(0), k = weight.size(1);
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < input.ndim(); ++i) rows *= input.shape()[i];
  auto whole = [=, dtype = input.dtype()] { return dequantize_fp8(weight, scale, dtype); };
  if (!dynamic || rows == 0)
    return linear_of_codes(
        op, input, bias, n, whole,
        [&](CodedProduct& p) {
          check_floating(op, "scale", scale);
          check_same_device(op, weight, scale);
          SF_CHECK(scale.numel() == 1 || scale.shape() == Shape({n, 1}), op, ": scale must have one element, or shape ",
                   Shape{n, 1}, " for each row, got ", scale.shape());
          const Tensor s = contiguous(to_dtype(scale.detach(), kFloat32)).view({scale.numel()}), q = contiguous(weight);
          p.codes = q, p.scales = s;
          p.format = weight.dtype() == kFloat8E4M3 ? CodedFormat::E4m3 : CodedFormat::E5m2;
          return coded_product_into(p);
        },
        end);
  const Activation act = pointwise_activation(op, end.activation);
  Tensor y;
  {
    autograd::NoGrad off;
    // Scales of rows on both sides or of neither: the pairs that the GPUs' products know.
    auto [q, row_scale] = quantize_fp8(input.reshape({rows, k}), kFloat8E4M3, scale.numel() > 1);
    Shape out = input.shape();
    out.back() = n;
    y = scaled_mm(q, weight.t(), row_scale, scale.numel() > 1 ? scale.t() : scale, bias, input.dtype(), true).view(out);
  }
  y = autograd::record(
      op, y, {input, bias},
      [=, shape = input.shape(), nx = input.requires_grad(), nb = bias.requires_grad()](const Tensor& dy) {
        Tensor g = dy.reshape({rows, n});
        return Tensors{nx ? matmul(g, whole()).reshape(shape) : Tensor(), nb ? sum(g, Shape{0}) : Tensor()};
      });
  return activated(end.residual ? y + end.residual : y, act);
}

Tensor linear_fp8(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias, bool dynamic) {
  return linear_fp8_with(input, weight, scale, bias, dynamic, {});
}

SF_OP(quantize_fp8, "input, dtype=None, per_row=False")
    .doc("float8 and the scale that it was divided by: of the tensor or of each row.")
    .no_gradient()
    .kernels(fp8_quantize);
SF_OP(dequantize_fp8, "input, scale, dtype=None")
    .doc("input * scale in another dtype.")
    .no_gradient()
    .kernels(fp8_dequantize);
SF_OP(scaled_mm, "input, mat2, scale_a, scale_b, bias=None, out_dtype=None, use_fast_accum=False")
    .doc("(input @ mat2) * scale_a * scale_b + bias of float8 matrices.")
    .no_gradient()
    .kernels(scaled_product);
SF_OP(linear_fp8, "input, weight, scale, bias=None, dynamic=False")
    .doc("linear with a frozen float8 weight; with dynamic the input is quantised too.")
    .kernels(coded_product, fp8_dequantize, fp8_quantize, scaled_product, gemm);

}  // namespace sf
