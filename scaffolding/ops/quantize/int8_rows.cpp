// Sums are scaled by a loop that is compiled once, as int8_codes.h's are.
#include "scaffolding/ops/quantize/int8_rows.h"

#include <atomic>
#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/int_mm/int_mm.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/int8_codes.h"
#include "scaffolding/ops/quantize/int8_kernel.h"
#include "scaffolding/ops/quantize/quantized_piece.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Int8Quantize> int8_quantize{"int8_quantize"};
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

// x[r, k] to codes[r, k] and most[r]. Whether all are finite.
bool quantize_rows(const float* x, int64_t rows, int64_t k, int8_t* codes, float* most) {
  std::atomic<bool> finite = true;
  parallel_for(rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, k)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float largest = largest_magnitude(x + r * k, k);
      if (std::isnan(largest)) finite.store(false, std::memory_order_relaxed);
      else to_codes(x + r * k, k, code_factor(largest), codes + r * k);
      most[r] = largest;
    }
  });
  return finite;
}

// float(sums[r, n]) * rows[r] * columns[n] + bias[n]
void scale_sums(const int32_t* sums, int64_t rows, int64_t n, const float* row, const float* column, const float* bias,
                float* to) {
  parallel_for(rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < n; ++i) {
        const float y = float(sums[r * n + i]) * row[r] * column[i];
        to[r * n + i] = bias ? y + bias[i] : y;
      }
  });
}

std::tuple<Tensor, Tensor> codes_of(const char* op, const Tensor& input) {
  const Tensor x = contiguous(input.detach()), rows = in_rows(x);
  Tensor most = empty({rows.size(0)}, kFloat32, x.device()), codes = empty(x.shape(), kInt8, x.device());
  if (x.numel() == 0) return {codes, most.fill_(0)};
  if (x.device().is_cpu()) {
    const int64_t k = rows.size(1), each = std::max<int64_t>(1, kQuantizedPiece / k);
    for (int64_t r = 0; r < rows.size(0); r += each) {
      const int64_t n = std::min(each, rows.size(0) - r);
      const Tensor part = contiguous(to_dtype(rows.narrow(0, r, n), kFloat32));
      SF_CHECK(quantize_rows(static_cast<const float*>(part.data_ptr()), n, k,
                             static_cast<int8_t*>(codes.data_ptr()) + r * k, static_cast<float*>(most.data_ptr()) + r),
               op, ": input has numbers that are not finite");
    }
    return {codes, most};
  }
  const Tensor wide = rows.dtype() == kFloat64 ? to_dtype(rows, kFloat32) : rows, flat = codes.view(rows.shape());
  call_int8(op, int8_quantize, Int8Quantize{wide, flat, most}, x.device());
  return {codes, most};
}

}  // namespace

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
    const Tensor sums = int_mm(codes, weight.t()), row = most * double(float(kInt8Unit));
    Tensor column = s.numel() == n ? s : contiguous(s.expand({n}));
    if (float(unit) != 1.f) column = column * double(float(unit));
    const Tensor b = bias ? contiguous(to_dtype(bias.detach(), kFloat32)) : bias;
    if (input.device().is_cpu()) {
      y = empty({rows, n}, kFloat32);
      scale_sums(static_cast<const int32_t*>(sums.data_ptr()), rows, n, static_cast<const float*>(row.data_ptr()),
                 static_cast<const float*>(column.data_ptr()), b ? static_cast<const float*>(b.data_ptr()) : nullptr,
                 static_cast<float*>(y.data_ptr()));
    } else {
      y = empty({rows, n}, input.dtype() == kFloat64 ? kFloat32 : input.dtype(), input.device());
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
    .kernels(coded_product, int8_quantize, int_mm_kernel, int8_scale, gemm);

}  // namespace sf
