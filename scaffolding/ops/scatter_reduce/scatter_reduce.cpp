#include "scaffolding/ops/scatter_reduce/scatter_reduce.h"

#include <limits>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/scatter_reduce/kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<ScatterReduce> scatter_reduce_kernel{"scatter_reduce"};

namespace {

constexpr const char* kOp = "scatter_reduce";

// All of one number of dimensions, at least 1; src has index's shape.
struct Call {
  Tensor x, index, src;
  int64_t dim;
};

Call checked(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src) {
  check_defined(kOp, "input", input);
  check_defined(kOp, "src", src);
  SF_CHECK_AS(TypeError, !is_float8(input.dtype()), kOp, ": ", input.dtype(),
              " is storage only; convert it to compute");
  SF_CHECK_AS(TypeError, src.dtype() == input.dtype(), kOp, ": src must have the dtype of input, ", input.dtype(),
              ", got ", src.dtype());
  check_same_device(kOp, input, src);
  int64_t d = wrap_dim(kOp, dim, input.ndim());
  auto at_least_1d = [](const Tensor& t) { return t.ndim() == 0 ? t.reshape({1}) : t; };
  Call c{at_least_1d(input), at_least_1d(indexing::as_positions(kOp, "index", index, input.device())), at_least_1d(src),
         d};
  SF_CHECK(c.index.ndim() == c.x.ndim() && c.src.ndim() == c.x.ndim(), kOp,
           ": index and src must have as many dimensions as input ", input.shape(), ", got ", index.shape(), " and ",
           src.shape());
  if (c.index.numel() == 0) {  // nothing is looked at
    c.index = empty(c.index.shape(), kInt64, c.x.device()), c.src = empty(c.index.shape(), c.x.dtype(), c.x.device());
    return c;
  }
  for (int64_t i = 0; i < c.x.ndim(); ++i) {
    int64_t n = c.index.shape()[i];
    SF_CHECK(i == d || n <= c.x.shape()[i], kOp, ": index ", index.shape(), " must not be larger than input ",
             input.shape(), " in dimension ", i);
    SF_CHECK(n <= c.src.shape()[i], kOp, ": index ", index.shape(), " must not be larger than src ", src.shape());
    if (n < c.src.shape()[i]) c.src = c.src.narrow(i, 0, n);
  }
  indexing::check_range(kOp, c.index, 0, c.x.shape()[d], d);
  return c;
}

// x with `number` where something comes.
Tensor filled(const Tensor& x, const Call& c, const Scalar& number) {
  return scatter(x, c.dim, c.index, wrapped(number));
}

Scalar neutral(ScatterReduce::What what, DType t) {
  if (what == ScatterReduce::Prod) return is_floating(t) ? Scalar(1.0) : Scalar(1);
  bool largest = what == ScatterReduce::Max;
  if (is_floating(t))
    return largest ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  if (t == kBool) return !largest;
  return visit_dtype(t, [&](auto tag) -> Scalar {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>)
      return largest ? int64_t(std::numeric_limits<T>::lowest()) : int64_t(std::numeric_limits<T>::max());
    else return 0;
  });
}

// Off the tape.
Tensor run(ScatterReduce::What what, const Call& c, bool include_self) {
  autograd::NoGrad off;
  DType t = c.x.dtype(), wide = is_reduced(t) && what == ScatterReduce::Prod ? kFloat32 : t;
  Tensor y = contiguous(to_dtype(include_self ? c.x : filled(c.x, c, neutral(what, t)), wide));
  if (y.storage() == c.x.storage()) y = clone(y);
  Tensor src = to_dtype(c.src, wide);
  ScatterReduce s{y, c.index, src, int(c.dim), what};
  auto kernel = scatter_reduce_kernel.find(y.device(), s);
  SF_CHECK_AS(NotSupported, kernel, kOp, ": products and extrema have no kernel for ", t, " on ", y.device(),
              "; move the tensors to the CPU");
  if (c.index.numel() > 0) kernel(s);
  return to_dtype(y, t);
}

Tensor extremum(ScatterReduce::What what, const Call& c, bool include_self) {
  Tensor y = run(what, c, include_self);
  return autograd::record(kOp, y, {c.x, c.src},
                          [x = autograd::save(c.x), src = autograd::save(c.src), index = c.index, dim = c.dim,
                           include_self](const Tensor& dy, const Tensor& y) -> Tensors {
                            Call c{x.get(), index, src.get(), dim};
                            Tensor own = eq(c.x, y), come = eq(c.src, gather(y, dim, index)), zero = wrapped(0.0);
                            if (!include_self) own = filled(own, c, false);
                            Tensor share =
                                dy / scatter_add(to_dtype(own, dy.dtype()), dim, index, to_dtype(come, dy.dtype()));
                            return {where(own, share, zero), where(come, gather(share, dim, index), zero)};
                          });
}

// The product of all other factors of x, from the product of those that are not 0 and the number of those that are.
Tensor others(const Tensor& x, const Tensor& product, const Tensor& zeros) {
  Tensor is_zero = eq(x, wrapped(0.0)), none = wrapped(0.0);
  Tensor for_zero = where(eq(zeros, wrapped(1.0)), product, none);
  Tensor for_others = where(eq(zeros, wrapped(0.0)), product / where(is_zero, wrapped(1.0), x), none);
  return where(is_zero, for_zero, for_others);
}

Tensor product(const Call& c, bool include_self) {
  Tensor y = run(ScatterReduce::Prod, c, include_self);
  return autograd::record(kOp, y, {c.x, c.src},
                          [x = autograd::save(c.x), src = autograd::save(c.src), index = c.index, dim = c.dim,
                           include_self](const Tensor& dy) -> Tensors {
                            Tensor v = x.get(), s = src.get(), one = wrapped(1.0);
                            Tensor zero_x = eq(v, wrapped(0.0)), zero_s = eq(s, wrapped(0.0));
                            Call factors{where(zero_x, one, v), index, where(zero_s, one, s), dim};
                            Tensor rest = product(factors, include_self), own = to_dtype(zero_x, dy.dtype());
                            Tensor zeros = scatter_add(include_self ? own : filled(own, factors, 0.0), dim, index,
                                                       to_dtype(zero_s, dy.dtype()));
                            Tensor dx = dy * others(v, rest, zeros);
                            if (!include_self) dx = filled(dx, factors, 0.0);
                            auto at = [&](const Tensor& t) { return gather(t, dim, index); };
                            return {dx, at(dy) * others(s, at(rest), at(zeros))};
                          });
}

Tensor sums(const Call& c, bool include_self) {
  return scatter_add(include_self ? c.x : filled(c.x, c, is_floating(c.x.dtype()) ? Scalar(0.0) : Scalar(0)), c.dim,
                     c.index, c.src);
}

Tensor means(const Call& c, bool include_self) {
  Tensor count;
  {
    autograd::NoGrad off;
    Call ones{sf::ones(c.x.shape(), kInt64, c.x.device()), c.index, sf::ones(c.index.shape(), kInt64, c.x.device()),
              c.dim};
    count = clamp(sums(ones, include_self), 1);
  }
  Tensor y = sums(c, include_self);
  return is_floating(y.dtype()) ? y / to_dtype(count, y.dtype()) : floor_divide(y, to_dtype(count, y.dtype()));
}

}  // namespace

Tensor scatter_reduce(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src,
                      const std::string& reduce, bool include_self) {
  SF_CHECK(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin", kOp,
           ": reduce must be 'sum', 'prod', 'mean', 'amax' or 'amin', got '", reduce, "'");
  Call c = checked(input, dim, index, src);
  SF_CHECK_AS(TypeError, input.dtype() != kBool || reduce == "amax" || reduce == "amin", kOp, ": bool tensors have no ",
              reduce);
  Tensor y = c.index.numel() == 0 ? clone(c.x)
             : reduce == "sum"    ? sums(c, include_self)
             : reduce == "mean"   ? means(c, include_self)
             : reduce == "prod"   ? product(c, include_self)
                                : extremum(reduce == "amax" ? ScatterReduce::Max : ScatterReduce::Min, c, include_self);
  return input.ndim() == 0 ? y.reshape({}) : y;
}

SF_OP(scatter_reduce, "input, dim, index, src, reduce, include_self=True")
    .doc("input with the sum, prod, mean, amax or amin of src at y[index[i][j]][j] for dim=0, and so on.")
    .like("torch.scatter_reduce(input, dim, index, src, reduce, include_self=include_self)")
    .inplace()
    .kernels(scatter_reduce_kernel, scatter_kernel);

}  // namespace sf
