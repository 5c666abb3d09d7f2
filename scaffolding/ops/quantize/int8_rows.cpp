#include "scaffolding/ops/quantize/int8_rows.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/int_mm/int_mm.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/int8_kernel.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Int8Quantize> int8_quantize{"int8_quantize"};
constinit KernelTable<Int8Linear> int8_linear{"int8_linear"};
constinit KernelTable<Int8Scale> int8_scale{"int8_scale"};
constinit KernelTable<Int8Unfold> int8_unfold{"int8_unfold"};

namespace {

Tensor in_rows(const Tensor& x) {
  const int64_t k = x.shape().back();
  return x.reshape({k > 0 ? x.numel() / k : 0, k});
}

void check_int8(const char* op, const char* name, const Tensor& t) {
  check_defined(op, name, t);
  SF_CHECK_AS(TypeError, t.dtype() == kInt8, op, ": ", name, " must be int8, got ", t.dtype());
}

// float32, [rows] or [].
Tensor row_scales(const char* op, const Tensor& scale, const Tensor& rows) {
  check_defined(op, "scale", scale);
  check_floating(op, "scale", scale);
  check_same_device(op, rows, scale);
  const int64_t n = rows.size(0);
  SF_CHECK(scale.numel() == 1 || scale.shape() == Shape({n}) || scale.shape() == Shape({n, 1}), op,
           ": scale must have one element, or shape [", n, "] for each row, got ", scale.shape());
  return contiguous(to_dtype(scale.detach(), kFloat32)).view({scale.numel()});
}

std::tuple<Tensor, Tensor> codes_of(const char* op, const Tensor& input) {
  const Tensor x = contiguous(input.detach());
  Tensor most = empty({in_rows(x).size(0)}, kFloat32, x.device()), codes = empty(x.shape(), kInt8, x.device());
  if (x.numel() == 0) return {codes, most.fill_(0)};
  quantize_rows_into(op, in_rows(x), in_rows(codes), most);
  return {codes, most};
}

}  // namespace

void quantize_rows_into(const char* op, const Tensor& rows, const Tensor& codes, const Tensor& most) {
  const Tensor x = is_beside_int8(rows.dtype()) ? rows : to_dtype(rows, kFloat32);
  call_int8(op, int8_quantize, Int8Quantize{x, codes, most}, x.device());
  if (!x.device().is_cpu()) return;
  const auto* largest = static_cast<const float*>(most.data_ptr());
  for (int64_t r = 0; r < most.numel(); ++r)
    SF_CHECK(!std::isnan(largest[r]), op, ": input has numbers that are not finite");
}

std::tuple<Tensor, Tensor> quantize_int8(const Tensor& input) {
  check_defined("quantize_int8", "input", input);
  check_floating("quantize_int8", "input", input);
  SF_CHECK(input.ndim() >= 1, "quantize_int8: needs input [..., K], got a scalar");
  autograd::NoGrad off;
  return codes_of("quantize_int8", input);
}

Tensor dequantize_int8(const Tensor& input, const Tensor& scale, std::optional<DType> dtype, double unit) {
  const char* op = "dequantize_int8";
  check_int8(op, "input", input);
  SF_CHECK(input.ndim() >= 1, op, ": needs input [..., K], got a scalar");
  const DType t = dtype.value_or(kFloat32);
  SF_CHECK_AS(TypeError, is_floating(t) && !is_float8(t), op,
              ": dtype must be float32, float64, bfloat16 or float16, got ", t);
  autograd::NoGrad off;
  const Tensor rows = in_rows(input), s = row_scales(op, scale, rows);
  Tensor y = to_dtype(rows, kFloat32) * (s.numel() == 1 ? s.view({1, 1}) : s.unsqueeze(-1));
  if (float(unit) != 1.f) y = y * double(float(unit));
  return to_dtype(y, t).view(input.shape());
}

Tensor linear_int8(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias, double unit,
                   bool dynamic, const Tensor& residual) {
  return linear_int8_with(input, weight, scale, bias, unit, dynamic, {.residual = residual});
}

Tensor linear_int8_with(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias, double unit,
                        bool dynamic, const ProductEnd& end) {
  const Tensor& residual = end.residual;
  const char* op = "linear_int8";
  check_int8(op, "weight", weight);
  check_coded_linear(op, input, weight, bias);
  autograd::refuse_gradient("linear_int8: a weight in int8", {scale});
  const int64_t n = weight.size(0), k = weight.size(1);
  const Tensor s = row_scales(op, scale, weight);
  auto whole = [=, dtype = input.dtype()] { return dequantize_int8(weight, s, dtype, unit); };
  if (!dynamic || input.numel() == 0 || n == 0)
    return linear_of_codes(
        op, input, bias, n, whole,
        [&](CodedProduct& p) {
          const Tensor q = contiguous(weight), each = s.numel() == n ? s : contiguous(s.expand({n}));
          p.codes = q, p.scales = each, p.format = CodedFormat::Int8, p.unit = float(unit);
          return coded_product_into(p);
        },
        end);
  const Activation act = pointwise_activation(op, end.activation);
  SF_CHECK(k <= kMostSummed, op, ": sums of int8 products fit an int32 up to K = ", kMostSummed, ", got ", k);
  const int64_t rows = input.numel() / k;
  Tensor y;
  {
    autograd::NoGrad off;
    auto [codes, most] = codes_of(op, input.reshape({rows, k}));
    const Tensor row = most * double(float(kInt8Unit));
    Tensor column = s.numel() == n ? s : contiguous(s.expand({n}));
    if (float(unit) != 1.f) column = column * double(float(unit));
    const Tensor b = bias ? contiguous(to_dtype(bias.detach(), kFloat32)) : bias;
    y = empty({rows, n}, is_beside_int8(input.dtype()) ? input.dtype() : kFloat32, input.device());
    if (input.device().is_cpu()) {
      const Tensor w = contiguous(weight);
      Int8Linear product{codes, w, row, column, {}, y};
      if (b) product.bias = b;
      call_int8(op, int8_linear, product, y.device());
    } else {
      const Tensor sums = int_mm(codes, weight.t());
      Int8Scale scale_all{sums, row, column, {}, y};
      if (b) scale_all.bias = b;
      call_int8(op, int8_scale, scale_all, y.device());
    }
    Shape out = input.shape();
    out.back() = n;
    check_shape(op, "residual", residual, out);
    y = to_dtype(y, input.dtype()).view(out);
  }
  y = autograd::record(
      op, y, {input, bias},
      [=, shape = input.shape(), nx = input.requires_grad(), nb = bias && bias.requires_grad()](const Tensor& dy) {
        const Tensor g = dy.reshape({rows, n});
        return Tensors{nx ? matmul(g, whole()).reshape(shape) : Tensor(), nb ? sum(g, Shape{0}) : Tensor()};
      });
  return activated(residual ? y + residual : y, act);
}

SF_OP(quantize_int8, "input")
    .doc("int8 codes of each row, and the row's largest magnitude, which is 127; bitsandbytes' rounding.")
    .no_gradient();
SF_OP(dequantize_int8, "input, scale, dtype=None, unit=0.007874015718698502")
    .doc("input * scale * unit in another dtype; scale is of each row, or one for all.")
    .no_gradient();
SF_OP(linear_int8, "input, weight, scale, bias=None, unit=0.007874015718698502, dynamic=False, residual=None")
    .doc("linear with a frozen weight in int8 by rows; with dynamic the input's rows become int8 too, with exact sums.")
    .kernels(coded_product, int8_quantize, int8_linear, int_mm_kernel, int8_scale, gemm);

}  // namespace sf
