#include "scaffolding/ops/quantize/fp8_producers.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/glu/glu.h"
#include "scaffolding/ops/layer_norm/layer_norm.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/fp8.h"
#include "scaffolding/ops/quantize/kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<LayerNormFp8> layer_norm_fp8_kernel{"layer_norm_fp8"};
constinit KernelTable<GegluFp8> geglu_fp8_kernel{"geglu_fp8"};

namespace {

int64_t rows_of(const Tensor& x) { return x.numel() / std::max<int64_t>(x.shape().back(), 1); }

Float8Rows quantised(const Tensor& x) {
  auto [q, scale] = quantize_fp8(x, kFloat8E4M3, true);
  return {q, scale.reshape({rows_of(x), 1})};
}

Float8Rows room_for(const Shape& sizes, Device device) {
  Tensor q = empty(sizes, kFloat8E4M3, device);
  return {q, empty({rows_of(q), 1}, kFloat32, device)};
}

}  // namespace

Float8Rows layer_norm_fp8(const Tensor& input, const Tensor& weight, const Tensor& bias, double eps) {
  check_floating("layer_norm_fp8", "x", input);
  autograd::NoGrad off;
  const int64_t columns = input.shape().back();
  const Tensor x = contiguous(input);
  if (x.numel() > 0) {
    Float8Rows y = room_for(x.shape(), x.device());
    const Tensor w = weight ? contiguous(weight) : weight, b = bias ? contiguous(bias) : bias,
                 rows = x.view({rows_of(x), columns}), q = y.q.view(rows.shape()), scale = y.scale.view({rows_of(x)});
    LayerNormFp8 args{rows, w, b, eps, q, scale};
    if (auto kernel = layer_norm_fp8_kernel.find(x.device(), args)) {
      kernel(args);
      return y;
    }
  }
  return quantised(layer_norm(x, {columns}, weight, bias, eps));
}

Float8Rows geglu_fp8(const Tensor& projection) {
  check_floating("geglu_fp8", "projection", projection);
  SF_CHECK(projection.ndim() > 0 && projection.shape().back() % 2 == 0,
           "geglu_fp8: the last dimension must be hidden and gate, got ", projection.shape());
  autograd::NoGrad off;
  const Tensor p = contiguous(projection);
  const int64_t columns = p.shape().back() / 2;
  if (p.numel() > 0) {
    Shape sizes = p.shape();
    sizes.back() = columns;
    Float8Rows y = room_for(sizes, p.device());
    const Tensor rows = p.view({rows_of(p), 2 * columns}), q = y.q.view({rows_of(p), columns}),
                 scale = y.scale.view({rows_of(p)});
    GegluFp8 args{rows.narrow(1, 0, columns), rows.narrow(1, columns, columns), q, scale};
    if (auto kernel = geglu_fp8_kernel.find(p.device(), args)) {
      kernel(args);
      return y;
    }
  }
  return quantised(geglu(p));
}

Tensor linear_of_fp8(const Float8Rows& x, const Tensor& weight, const Tensor& scale, const Tensor& bias,
                     const Tensor& residual, DType dtype) {
  const char* op = "linear_of_fp8";
  const int64_t k = x.q.shape().back(), rows = rows_of(x.q), n = weight.size(0);
  SF_CHECK(weight.ndim() == 2 && weight.size(1) == k, op, ": needs a weight [N, ", k, "], got ", weight.shape());
  check_shape(op, "scale", scale, {n, 1});
  check_shape(op, "bias", bias, {n});
  Shape out = x.q.shape();
  out.back() = n;
  check_shape(op, "residual", residual, out);
  autograd::NoGrad off;
  const Tensor flat = x.q.view({rows, k});
  if (residual && residual.dtype() == dtype && is_reduced(dtype) && (!bias || bias.dtype() == dtype) && rows > 0) {
    Tensor y = empty(out, dtype, x.q.device()), added = contiguous(residual), b = bias ? contiguous(bias) : bias;
    ScaledProduct args{flat, weight.t(),        x.scale.view({rows}), scale.view({n}),
                       b,    y.view({rows, n}), added.view({rows, n})};
    args.fast_accumulation = true;
    if (auto kernel = scaled_product.find(x.q.device(), args)) {
      kernel(args);
      return y;
    }
  }
  const Tensor y = scaled_mm(flat, weight.t(), x.scale, scale.t(), bias, dtype, true).view(out);
  return residual ? residual + y : y;
}

}  // namespace sf
