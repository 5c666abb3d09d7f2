#include "scaffolding/ops/reduce/reduce.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Reduce> sum_kernel{"sum"};

namespace {

// Brings x to [outer, n] with the reduced dimensions last and dense; shape_out keeps the others (1 where reduced).
struct Plan {
  Tensor rows;
  Shape kept;     // result shape with keepdim
  Shape result;   // result shape
};
Plan plan(const char* op, const Tensor& x, const Shape& dim, bool keepdim) {
  check_defined(op, "input", x);
  Shape dims = wrap_dims(op, dim, x.ndim()), order;
  Plan p;
  int64_t n = 1;
  for (int64_t i = 0; i < x.ndim(); ++i)
    if (!dims.contains(i)) order.push_back(i);
  for (int64_t i = 0; i < x.ndim(); ++i) {
    bool reduced = dims.contains(i);
    if (reduced) {
      order.push_back(i);
      n *= x.shape()[i];
    }
    p.kept.push_back(reduced ? 1 : x.shape()[i]);
    if (!reduced || keepdim) p.result.push_back(reduced ? 1 : x.shape()[i]);
  }
  autograd::NoGrad off;
  p.rows = contiguous(x.permute(order)).view({numel(p.kept), n});
  return p;
}

}  // namespace

Tensor sum(const Tensor& input, const Shape& dim, bool keepdim, std::optional<DType> dtype) {
  check_defined("sum", "input", input);
  DType t = dtype.value_or(is_floating(input.dtype()) ? input.dtype() : kInt64);
  Tensor x = to_dtype(input, t);
  Plan p = plan("sum", x, dim, keepdim);
  Tensor y = empty(p.result, t, x.device());
  Reduce r{y.view({y.numel()}), p.rows};
  auto kernel = sum_kernel.find(x.device(), r);
  SF_CHECK_AS(NotSupported, kernel, "sum: no kernel for ", t, " on ", x.device());
  kernel(r);
  return autograd::record("sum", y, {x}, [kept = p.kept, full = x.shape()](const Tensor& dy) -> Tensors { return {dy.reshape(kept).expand(full)}; });
}

Tensor mean(const Tensor& input, const Shape& dim, bool keepdim, std::optional<DType> dtype) {
  check_defined("mean", "input", input);
  SF_CHECK_AS(TypeError, is_floating(dtype.value_or(input.dtype())), "mean: needs a floating-point dtype, got ", input.dtype());
  int64_t n = 1;
  for (auto d : wrap_dims("mean", dim, input.ndim())) n *= input.shape()[d];
  return sum(input, dim, keepdim, dtype) / double(n);
}

Tensor Tensor::sum(const Shape& dim, bool keepdim, std::optional<DType> dtype) const { return sf::sum(*this, dim, keepdim, dtype); }
Tensor Tensor::mean(const Shape& dim, bool keepdim, std::optional<DType> dtype) const { return sf::mean(*this, dim, keepdim, dtype); }

SF_OP(sum, "input, dim=None, keepdim=False, dtype=None").doc("Sum over dim (all without it).").kernels(sum_kernel);
SF_OP(mean, "input, dim=None, keepdim=False, dtype=None").doc("Mean over dim (all without it).").kernels(sum_kernel);

namespace {

void sum_cpu(const Reduce& r) {
  int64_t rows = r.out.numel(), n = rows ? r.in.sizes[1] : 0;
  visit_dtype(r.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* x = r.in.as<const T>();
    auto* y = r.out.as<T>();
    parallel_for(rows, std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(n, 1)), [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) {
        if constexpr (std::is_integral_v<T>) {
          uint64_t s = 0;
          for (int64_t j = 0; j < n; ++j) s += uint64_t(x[i * n + j]);
          y[i] = T(s);
        } else {
          double s = 0;
          for (int64_t j = 0; j < n; ++j) {
            if constexpr (std::is_same_v<T, double>) s += x[i * n + j];
            else s += to_float(x[i * n + j]);
          }
          if constexpr (std::is_same_v<T, double>) y[i] = s;
          else y[i] = from_float<T>(float(s));
        }
      }
    });
  });
}
SF_KERNEL(sum_kernel, DeviceType::CPU, "native", 0, sum_cpu, nullptr)

}  // namespace
}  // namespace sf
