// sort, argsort and topk.
#include "scaffolding/ops/sort/sort.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/reduce/reduce_internal.h"
#include "scaffolding/ops/sort/kernel.h"

namespace sf {

constinit KernelTable<Sort> sort_kernel{"sort"};
constinit KernelTable<Rank> rank_kernel{"rank"};

namespace {

// The first k in order; k < 0 means all.
std::tuple<Tensor, Tensor> first_in_order(const char* op, const Tensor& x, int64_t k, int64_t dim, bool descending,
                                          bool want_values) {
  check_defined(op, "input", x);
  SF_CHECK_AS(TypeError, !is_float8(x.dtype()), op, ": ", x.dtype(), " is storage only; convert it to compute");
  dim = wrap_dim(op, dim, x.ndim());
  int64_t n = x.ndim() == 0 ? 1 : x.shape()[dim];
  SF_CHECK(k <= n, op, ": k must be in [0, ", n, "], the size of dimension ", dim, ", got ", k);
  SF_CHECK(n < (int64_t(1) << 32), op, ": at most 2^32 elements can be sorted, got ", n);
  Shape size = x.shape();
  if (k >= 0 && !size.empty()) size[dim] = k;
  SF_CHECK(k != 0 || !size.empty(), op, ": k must be 1 for a 0-d input, got 0");
  Tensor values = want_values ? empty(size, x.dtype(), x.device()) : Tensor(),
         indices = empty(size, kInt64, x.device());
  Sort s{values ? reduction::with_last(values, dim) : TensorView{}, reduction::with_last(indices, dim),
         reduction::with_last(x, dim), descending};
  auto kernel = sort_kernel.find(x.device(), s);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
  if (indices.numel() > 0) kernel(s);
  if (!want_values) return {values, indices};
  Tensors ys{values, indices};
  autograd::record_outputs(op, ys, {x}, [indices, dim, full = x.shape()](const Tensors& dys) -> Tensors {
    if (!dys[0]) return {Tensor()};
    return {scatter(zeros(full, dys[0].dtype(), dys[0].device()), dim, indices, dys[0])};
  });
  return {ys[0], ys[1]};
}

}  // namespace

std::tuple<Tensor, Tensor> sort(const Tensor& input, int64_t dim, bool descending, bool) {
  return first_in_order("sort", input, -1, dim, descending, true);
}
Tensor argsort(const Tensor& input, int64_t dim, bool descending, bool) {
  return std::get<1>(first_in_order("argsort", input, -1, dim, descending, false));
}
std::tuple<Tensor, Tensor> topk(const Tensor& input, int64_t k, int64_t dim, bool largest, bool) {
  SF_CHECK(k >= 0, "topk: k must not be negative, got ", k);
  return first_in_order("topk", input, k, dim, largest, true);
}

Tensor places_of_ranks(const Tensor& x, const Tensor& ranks) {
  autograd::NoGrad off;
  Tensor indices = empty(ranks.shape(), kInt64, x.device());
  if (indices.numel() == 0) return indices;
  Rank r{indices, ranks, x};
  auto kernel = rank_kernel.find(x.device(), r);
  if (!kernel || x.shape().back() >= (int64_t(1) << 32)) return gather(argsort(x, -1), -1, ranks);
  kernel(r);
  return indices;
}

SF_OP(sort, "input, dim=-1, descending=False, stable=False")
    .doc("Values in order along dim and where they were; equal elements keep their order, NaN is the largest.")
    .like("torch.sort(input, dim=dim, descending=descending, stable=True)")
    .kernels(sort_kernel);
SF_OP(argsort, "input, dim=-1, descending=False, stable=False")
    .doc("The indices that sort input along dim.")
    .like("torch.argsort(input, dim=dim, descending=descending, stable=True)")
    .no_gradient()
    .kernels(sort_kernel);
SF_OP(topk, "input, k, dim=-1, largest=True, sorted=True")
    .doc("The k largest (or smallest) elements along dim, best first, and their indices.")
    .kernels(sort_kernel);

}  // namespace sf
