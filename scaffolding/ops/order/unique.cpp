// unique and unique_consecutive.
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/order/order.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/sort/kernel.h"
#include "scaffolding/ops/sort/sort.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

void check_input(const char* op, const Tensor& x) {
  check_defined(op, "input", x);
  SF_CHECK_AS(TypeError, !is_float8(x.dtype()), op, ": ", x.dtype(), " is storage only; convert it to compute");
  SF_CHECK_AS(RuntimeError, !x.device().is_meta(), op,
              ": the shape depends on the values, which a meta tensor does not have");
}

// x[n, m]: whether a row differs from the one before it; the first does. bool [n]
Tensor begins_run(const Tensor& x) {
  int64_t n = x.shape()[0];
  Tensor first = full({n}, true, kBool, x.device());
  if (n > 1) copy_bytes(first.narrow(0, 1, n - 1), any(ne(x.narrow(0, 1, n - 1), x.narrow(0, 0, n - 1)), {1}));
  return first;
}

// Numbers the elements of each column of x[n, m] by their order, equal ones alike: int64 [n, m] in [0, n).
Tensor ranks(const Tensor& x) {
  auto [values, order] = sort(x, 0);
  int64_t n = x.shape()[0];
  Tensor changed = zeros(x.shape(), kInt64, x.device());
  if (n > 1)
    copy_bytes(changed.narrow(0, 1, n - 1),
               to_dtype(ne(values.narrow(0, 1, n - 1), values.narrow(0, 0, n - 1)), kInt64));
  return scatter(changed, 0, order, cumsum(changed, 0));
}

// Numbers the rows of x[n, m], m > 0, by their lexicographic order: int64 [n]. Pairs of neighbouring columns become one
// by turns: a number of two digits to base n orders as the two do.
Tensor row_ranks(const Tensor& x) {
  Tensor r = ranks(x);
  int64_t n = x.shape()[0];
  while (r.shape()[1] > 1) {
    int64_t m = r.shape()[1], pairs = m / 2;
    Tensor joined = r.slice(1, 0, 2 * pairs, 2) * n + r.slice(1, 1, 2 * pairs, 2), next = ranks(joined);
    if (m % 2) {
      Tensor wider = empty({n, pairs + 1}, kInt64, x.device());
      copy_bytes(wider.narrow(1, 0, pairs), next);
      copy_bytes(wider.narrow(1, pairs, 1), r.narrow(1, m - 1, 1));
      next = wider;
    }
    r = next;
  }
  return r.reshape({-1});
}

// Lengths of runs that begin at positions[k] of n.
Tensor lengths(const Tensor& positions, int64_t n) {
  int64_t k = positions.numel();
  Tensor ends = full({k}, n, kInt64, positions.device());
  if (k > 1) copy_bytes(ends.narrow(0, 0, k - 1), positions.narrow(0, 1, k - 1));
  return ends - positions;
}

// input with dim first, as rows: [n, m], m > 0 unless n is 0.
Tensor rows_of(const char* op, const Tensor& input, int64_t dim) {
  Tensor x = input.ndim() ? input : input.reshape({1});
  x = movedim(x, {dim}, {0});
  int64_t n = x.shape()[0], m = 1;
  for (int64_t d = 1; d < x.ndim(); ++d) m *= x.shape()[d];
  SF_CHECK(m > 0, op, ": the slices along dim ", dim, " of input ", input.shape(), " have no elements");
  return x.reshape({n, m});
}

// `rows` of input along dim; or of the flattened input without one.
Tensor picked(const Tensor& input, std::optional<int64_t> dim, const Tensor& rows) {
  if (!dim) return index_select(input.reshape({-1}), 0, rows);
  return index_select(input.ndim() ? input : input.reshape({1}), *dim, rows);
}

}  // namespace

Tensors unique(const Tensor& input, bool, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  const char* op = "unique";
  check_input(op, input);
  autograd::NoGrad off;
  if (dim) dim = wrap_dim(op, *dim, input.ndim());
  Tensor x = dim ? rows_of(op, input, *dim) : input.reshape({-1, 1});
  int64_t n = x.shape()[0];
  // what is sorted: elements themselves, or the numbers of rows
  auto [values, order] = sort(n == 0 ? x.reshape({-1}) : dim ? row_ranks(x) : x.reshape({-1}), 0);
  Tensor first = begins_run(values.reshape({n, 1})), positions = nonzero(first).reshape({-1});
  Tensors ys{picked(input, dim, index_select(order, 0, positions))};
  if (return_inverse) {
    Tensor number = cumsum(first, 0) - 1, inverse = scatter(number, 0, order, number);
    ys.push_back(dim ? inverse : inverse.reshape(input.shape()));
  }
  if (return_counts) ys.push_back(lengths(positions, n));
  return ys;
}

Tensors unique_consecutive(const Tensor& input, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  const char* op = "unique_consecutive";
  check_input(op, input);
  autograd::NoGrad off;
  if (dim) dim = wrap_dim(op, *dim, input.ndim());
  Tensor x = dim ? rows_of(op, input, *dim) : input.reshape({-1, 1});
  Tensor first = begins_run(x), positions = nonzero(first).reshape({-1});
  Tensors ys{picked(input, dim, positions)};
  if (return_inverse) {
    Tensor inverse = cumsum(first, 0) - 1;
    ys.push_back(dim ? inverse : inverse.reshape(input.shape()));
  }
  if (return_counts) ys.push_back(lengths(positions, x.shape()[0]));
  return ys;
}

SF_OP(unique, "input, sorted=True, return_inverse=False, return_counts=False, dim=None")
    .doc("The different elements (with dim: slices) in order; on demand the place of each element, and counts.")
    .like("torch.unique(input, sorted, return_inverse, return_counts, dim)")
    .no_gradient()
    .kernels(sort_kernel, nonzero_kernel);
SF_OP(unique_consecutive, "input, return_inverse=False, return_counts=False, dim=None")
    .doc("Of each run of equal elements (with dim: slices) one; on demand the place of each element, and counts.")
    .like("torch.unique_consecutive(input, return_inverse, return_counts, dim)")
    .no_gradient()
    .kernels(nonzero_kernel);

}  // namespace sf
