#include "scaffolding/ops/reduce/summaries.h"

#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/kernel.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

// The areas between neighbouring samples, one fewer than those.
Tensor areas(const char* op, const Tensor& y, const Tensor& x, double dx, int64_t& dim) {
  check_defined(op, "y", y);
  SF_CHECK_AS(TypeError, y.dtype() != kBool && !is_float8(y.dtype()), op, ": y must hold numbers, got ", y.dtype());
  SF_CHECK(y.ndim() > 0, op, ": y must have a dimension");
  dim = wrap_dim(op, dim, y.ndim());
  int64_t n = y.shape()[dim], last = n ? n - 1 : 0;
  Tensor ends = y.narrow(dim, n ? 1 : 0, last) + y.narrow(dim, 0, last);
  if (!x) return ends * (dx / 2);
  SF_CHECK_AS(TypeError, x.dtype() != kBool && !is_float8(x.dtype()), op, ": x must hold numbers, got ", x.dtype());
  Tensor at = x;
  int64_t d = dim;
  if (x.ndim() == 1) {  // along y's dimension
    for (int64_t i = dim + 1; i < y.ndim(); ++i) at = at.unsqueeze(-1);
    d = 0;
  } else {
    SF_CHECK(x.ndim() == y.ndim(), op, ": x must have y's dimensions or one, got ", x.shape(), " for ", y.shape());
  }
  SF_CHECK(at.shape()[d] == n, op, ": x must have as many places as y has values, ", n, ", got ", x.shape());
  return (at.narrow(d, n ? 1 : 0, last) - at.narrow(d, 0, last)) * ends / 2;
}

}  // namespace

Tensor nansum(const Tensor& input, const Shape& dim, bool keepdim, std::optional<DType> dtype) {
  check_defined("nansum", "input", input);
  if (!is_floating(input.dtype())) return sum(input, dim, keepdim, dtype);
  return sum(where(isnan(input), wrapped(0.0), input), dim, keepdim, dtype);
}

Tensor nanmean(const Tensor& input, const Shape& dim, bool keepdim, std::optional<DType> dtype) {
  check_defined("nanmean", "input", input);
  check_floating("nanmean", "input", input);
  Tensor x = dtype ? to_dtype(input, *dtype) : input;
  check_floating("nanmean", "dtype", x);
  Tensor total = nansum(x, dim, keepdim), count = sum(logical_not(isnan(input)), dim, keepdim);
  return total / to_dtype(count, total.dtype());
}

std::tuple<Tensor, Tensor> aminmax(const Tensor& input, std::optional<int64_t> dim, bool keepdim) {
  check_defined("aminmax", "input", input);
  Shape over = dim ? Shape{*dim} : Shape{};
  return {amin(input, over, keepdim), amax(input, over, keepdim)};
}

Tensor trapezoid(const Tensor& y, const Tensor& x, double dx, int64_t dim) {
  Tensor a = areas("trapezoid", y, x, dx, dim);
  return sum(a, {dim});
}
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, double dx, int64_t dim) {
  Tensor a = areas("cumulative_trapezoid", y, x, dx, dim);
  return cumsum(a, dim);
}

SF_OP(nansum, "input, dim=None, keepdim=False, dtype=None")
    .doc("The sum over dim (all without it) of the elements that are not NaN.")
    .kernels(reduce_kernel);
SF_OP(nanmean, "input, dim=None, keepdim=False, dtype=None")
    .doc("The mean over dim (all without it) of the elements that are not NaN.")
    .kernels(reduce_kernel);
SF_OP(aminmax, "input, dim=None, keepdim=False")
    .doc("The smallest and the largest element along dim, or of all.")
    .like("torch.aminmax(input, dim=dim, keepdim=keepdim)")
    .kernels(reduce_kernel);
SF_OP(trapezoid, "y, x=None, dx=1.0, dim=-1")
    .doc("The integral along dim of the lines through the values y at the places x, or at distances dx.")
    .like("torch.trapezoid(y, x, dim=dim) if x is not None else torch.trapezoid(y, dx=dx, dim=dim)");
SF_OP(cumulative_trapezoid, "y, x=None, dx=1.0, dim=-1")
    .doc("trapezoid from the first value to each of the others.")
    .like(
        "torch.cumulative_trapezoid(y, x, dim=dim) if x is not None else torch.cumulative_trapezoid(y, dx=dx, "
        "dim=dim)");

}  // namespace sf
