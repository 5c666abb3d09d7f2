// median, nanmedian, kthvalue, mode, quantile and nanquantile: places are found off the tape, elements are gathered on
// it.
#include "scaffolding/ops/order/order.h"

#include <cmath>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/search/kernel.h"
#include "scaffolding/ops/search/search.h"
#include "scaffolding/ops/sort/kernel.h"
#include "scaffolding/ops/sort/sort.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

using Pair = std::tuple<Tensor, Tensor>;

// input with at least one dimension, and dim wrapped; its size is n > 0.
struct Line {
  Tensor x;
  int64_t dim, n;
  bool is_number;
};
Line line_of(const char* op, const Tensor& input, int64_t dim) {
  check_defined(op, "input", input);
  SF_CHECK_AS(TypeError, !is_float8(input.dtype()), op, ": ", input.dtype(), " is storage only; convert it to compute");
  dim = wrap_dim(op, dim, input.ndim());
  Line l;
  l.x = input.ndim() ? input : input.reshape({1}), l.dim = dim, l.n = l.x.shape()[dim], l.is_number = input.ndim() == 0;
  SF_CHECK_AS(IndexError, l.n > 0, op, ": dimension ", dim, " has no elements, got input ", input.shape());
  return l;
}

// The elements at `at`, which has size 1 in the dimension, and `at` itself.
Pair taken(const Line& l, const Tensor& at, bool keepdim) {
  Tensor values = gather(l.x, l.dim, at), indices = at;
  if (l.is_number) return {values.reshape({}), indices.reshape({})};
  if (!keepdim) values = values.squeeze(l.dim), indices = indices.squeeze(l.dim);
  return {values, indices};
}

// How many numbers, not NaN, each line has; int64, size 1 in the dimension.
Tensor numbers_in(const Line& l) { return sum(logical_not(isnan(l.x)), {l.dim}, true); }

// Where the median of each line is, counted in its order.
Tensor middle(const Line& l, bool skip_nan) {
  Tensor count = numbers_in(l);
  Tensor half = clamp(floor_divide(count - 1, wrapped(2)), 0);
  // NaN are last in order: the first of them stands at `count`
  return skip_nan ? half : where(eq(count, wrapped(l.n)), half, count);
}

// One rank for all lines; int64, size 1 in the dimension.
Tensor same_rank(const Line& l, int64_t rank) {
  Shape one = l.x.shape();
  one[l.dim] = 1;
  return full({}, rank, kInt64, l.x.device()).expand(one);
}

// Where the elements of ranks stand along the dimension.
Tensor at_ranks(const Line& l, const Tensor& ranks) {
  if (l.x.ndim() == 1) return places_of_ranks(l.x, ranks);
  return movedim(places_of_ranks(movedim(l.x, {l.dim}, {-1}), movedim(ranks, {l.dim}, {-1})), {-1}, {l.dim});
}

Pair median_along(const char* op, const Tensor& input, int64_t dim, bool keepdim, bool skip_nan) {
  Line l = line_of(op, input, dim);
  Tensor at;
  {
    autograd::NoGrad off;
    at = at_ranks(l, is_floating(l.x.dtype()) ? middle(l, skip_nan) : same_rank(l, (l.n - 1) / 2));
  }
  return taken(l, at, keepdim);
}

Tensor median_of_all(const char* op, const Tensor& input, bool skip_nan) {
  check_defined(op, "input", input);
  SF_CHECK_AS(IndexError, input.numel() > 0, op, ": input has no elements, got ", input.shape());
  Tensor y;
  {
    autograd::NoGrad off;
    y = std::get<0>(median_along(op, input.reshape({-1}), 0, false, skip_nan));
  }
  return autograd::record(op, y, {input}, [x = autograd::save(input)](const Tensor& dy, const Tensor& y) -> Tensors {
    Tensor v = x.get(), chosen = logical_or(eq(v, y), logical_and(isnan(v), isnan(y)));
    return {where(chosen, dy / sum(chosen), wrapped(0.0))};
  });
}

Tensor quantile_of(const char* op, const Tensor& input, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   const std::string& how, bool skip_nan) {
  check_defined(op, "input", input);
  check_defined(op, "q", q);
  check_floating(op, "input", input);
  SF_CHECK(how == "linear" || how == "lower" || how == "higher" || how == "midpoint" || how == "nearest", op,
           ": interpolation must be 'linear', 'lower', 'higher', 'midpoint' or 'nearest', got '", how, "'");
  SF_CHECK(q.ndim() <= 1, op, ": q must be a number or have one dimension, got ", q.shape());
  SF_CHECK_AS(TypeError, q.impl()->is_scalar || q.dtype() == input.dtype(), op, ": q must have the dtype of input, ",
              input.dtype(), ", got ", q.dtype());
  if (!q.impl()->is_scalar) check_same_device(op, input, q);
  Line l = line_of(op, dim ? input : input.reshape({-1}), dim.value_or(0));
  // float32 ranks of 16-bit floats, which have no neighbouring integers above 256 or 2048
  DType wide = input.dtype() == kFloat64 ? kFloat64 : kFloat32;
  Tensor at_q = to_dtype(q, wide);
  if (q.impl()->is_scalar) at_q = full({}, q.item(), wide, input.device());
  {
    autograd::NoGrad off;
    SF_CHECK(indexing::all_hold(op, logical_and(ge(at_q, wrapped(0)), le(at_q, wrapped(1))).reshape({-1})), op,
             ": q must be between 0 and 1");
  }
  // lines with the dimension last: [..., n], and ranks [..., k]
  Tensor x = l.x.ndim() > 1 ? movedim(l.x, {l.dim}, {-1}) : l.x, count, whole;
  {
    autograd::NoGrad off;
    count = sum(logical_not(isnan(x)), {-1}, true);
    whole = eq(count, wrapped(l.n));
  }
  Tensor rank = at_q.reshape({-1}) * clamp(to_dtype(skip_nan ? count : full_like(count, l.n), wide) - 1, 0);
  if (!skip_nan) rank = where(whole, rank, wrapped(double(l.n - 1)));
  if (how == "lower") rank = floor(rank);
  else if (how == "higher") rank = ceil(rank);
  else if (how == "nearest") rank = round(rank);
  Tensor below = floor(rank.detach()), y;
  if (how == "linear" || how == "midpoint") {
    Tensor ranks = to_dtype(cat({below, ceil(rank.detach())}, -1), kInt64),
           both = gather(x, -1, places_of_ranks(x, ranks));
    int64_t k = rank.shape().back();
    Tensor weight = how == "midpoint" ? full_like(rank, 0.5) : rank - below;
    y = lerp(both.narrow(-1, 0, k), both.narrow(-1, k, k), to_dtype(weight, both.dtype()));
  } else {
    y = gather(x, -1, places_of_ranks(x, to_dtype(below, kInt64)));
  }
  y = movedim(y, {-1}, {0});  // [k, ...]
  if (keepdim) {
    if (dim && !l.is_number) y = y.unsqueeze(l.dim + 1);
    else
      for (int64_t d = 0; d < input.ndim(); ++d) y = y.unsqueeze(-1);
  } else if (l.is_number) {
    y = y.reshape({y.shape()[0]});
  }
  return q.ndim() == 0 ? y.squeeze(0) : y;
}

}  // namespace

Tensor median(const Tensor& input) { return median_of_all("median", input, false); }
Tensor nanmedian(const Tensor& input) { return median_of_all("nanmedian", input, true); }
Pair median_dim(const Tensor& input, int64_t dim, bool keepdim) {
  return median_along("median_dim", input, dim, keepdim, false);
}
Pair nanmedian_dim(const Tensor& input, int64_t dim, bool keepdim) {
  return median_along("nanmedian_dim", input, dim, keepdim, true);
}

Pair kthvalue(const Tensor& input, int64_t k, int64_t dim, bool keepdim) {
  Line l = line_of("kthvalue", input, dim);
  SF_CHECK(k >= 1 && k <= l.n, "kthvalue: k must be in [1, ", l.n, "], the size of dimension ", l.dim, ", got ", k);
  Tensor at;
  {
    autograd::NoGrad off;
    at = at_ranks(l, same_rank(l, k - 1));
  }
  return taken(l, at, keepdim);
}

Pair mode(const Tensor& input, int64_t dim, bool keepdim) {
  Line l = line_of("mode", input, dim);
  Tensor at;
  {
    autograd::NoGrad off;
    Tensor x = l.x.ndim() > 1 ? movedim(l.x, {l.dim}, {-1}) : l.x;
    auto [values, order] = sort(x);
    // Of each run the end; the first of the longest is that of the smallest element.
    Tensor end = searchsorted(values, values, false, true), length = end - searchsorted(values, values);
    Tensor longest = argmax(length, -1, true), last = gather(end, -1, longest) - 1;
    at = gather(order, -1, clamp(last, 0));
    if (l.x.ndim() > 1) at = movedim(at, {-1}, {l.dim});
  }
  return taken(l, at, keepdim);
}

Tensor quantile(const Tensor& input, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                const std::string& interpolation) {
  return quantile_of("quantile", input, q, dim, keepdim, interpolation, false);
}
Tensor nanquantile(const Tensor& input, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   const std::string& interpolation) {
  return quantile_of("nanquantile", input, q, dim, keepdim, interpolation, true);
}

SF_OP(median, "input")
    .doc("The lower of the two middle elements of all; NaN if there is one.")
    .kernels(rank_kernel, sort_kernel);
SF_OP(nanmedian, "input").doc("median of the elements that are not NaN.").kernels(rank_kernel, sort_kernel);
SF_OP(median_dim, "input, dim, keepdim=False")
    .doc("The lower of the two middle elements along dim and its index; NaN where there is one.")
    .like("torch.median(input, dim, keepdim)")
    .kernels(rank_kernel, sort_kernel);
SF_OP(nanmedian_dim, "input, dim, keepdim=False")
    .doc("median_dim of the elements that are not NaN.")
    .like("torch.nanmedian(input, dim, keepdim)")
    .kernels(rank_kernel, sort_kernel);
SF_OP(kthvalue, "input, k, dim=-1, keepdim=False")
    .doc("The k-th smallest element along dim, k from 1, and its index.")
    .kernels(rank_kernel, sort_kernel);
SF_OP(mode, "input, dim=-1, keepdim=False")
    .doc("The most frequent element along dim (of several the smallest) and the last place where it is.")
    .kernels(sort_kernel, searchsorted_kernel);
SF_OP(quantile, "input, q, dim=None, keepdim=False, interpolation='linear'")
    .doc("The elements at q * (n - 1) of the order along dim, or of all; q is a number or a tensor [k] in [0, 1].")
    .like("torch.quantile(input, q, dim, keepdim, interpolation=interpolation)")
    .kernels(rank_kernel, sort_kernel);
SF_OP(nanquantile, "input, q, dim=None, keepdim=False, interpolation='linear'")
    .doc("quantile of the elements that are not NaN.")
    .like("torch.nanquantile(input, q, dim, keepdim, interpolation=interpolation)")
    .kernels(rank_kernel, sort_kernel);

}  // namespace sf
