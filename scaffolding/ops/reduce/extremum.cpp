// amax, amin, max and min with indices, argmax, argmin, any, all.
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/reduce/reduce_internal.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<ArgReduce> arg_reduce_kernel{"arg_reduce"};

using reduction::Dims;
using reduction::dims_of;
using reduction::spread;

namespace {

Tensor extremum(const char* op, Reduction what, const Tensor& x, const Shape& dim, bool keepdim) {
  Dims d = dims_of(op, x, dim, keepdim, true);
  Tensor y = reduction::run(op, what, x, d, x.dtype());
  return autograd::record(op, y, {x}, [d, x = autograd::save(x)](const Tensor& dy, const Tensor& y) -> Tensors {
    Tensor v = x.get(), chosen = eq(v, spread(y, d, v.shape()));
    Tensor share = dy.reshape(d.kept) / sum(chosen, d.reduced, true);
    return {where(chosen, share, wrapped(0.0))};
  });
}

struct Best {
  Tensor values, indices;
};
Best arg_reduce(const char* op, const Tensor& x, int64_t dim, bool keepdim, bool largest, bool want_values) {
  check_defined(op, "input", x);
  SF_CHECK_AS(TypeError, !is_float8(x.dtype()), op, ": ", x.dtype(), " is storage only; convert it to compute");
  dim = wrap_dim(op, dim, x.ndim());
  SF_CHECK_AS(IndexError, x.ndim() == 0 || x.shape()[dim] > 0, op, ": dimension ", dim, " has no elements, got input ",
              x.shape());
  Shape kept;
  for (int64_t i = 0; i < x.ndim(); ++i)
    if (i != dim) kept.push_back(x.shape()[i]);
  Best b{want_values ? empty(kept, x.dtype(), x.device()) : Tensor(), empty(kept, kInt64, x.device())};
  ArgReduce r{b.values, b.indices, reduction::with_last(x, dim), largest};
  auto kernel = arg_reduce_kernel.find(x.device(), r);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
  kernel(r);
  if (keepdim && x.ndim() > 0) {
    autograd::NoGrad off;
    b.indices = b.indices.unsqueeze(dim);
    if (want_values) b.values = b.values.unsqueeze(dim);
  }
  return b;
}

std::tuple<Tensor, Tensor> extremum_with_index(const char* op, const Tensor& x, int64_t dim, bool keepdim,
                                               bool largest) {
  Best b = arg_reduce(op, x, dim, keepdim, largest, true);
  dim = wrap_dim(op, dim, x.ndim());
  Tensors ys{b.values, b.indices};
  autograd::record_outputs(op, ys, {x},
                           [dim, keepdim, indices = b.indices, full = x.shape()](const Tensors& dys) -> Tensors {
                             if (!dys[0]) return {Tensor()};
                             if (full.empty()) return {dys[0]};
                             Tensor dx = zeros(full, dys[0].dtype(), dys[0].device());
                             return {keepdim ? scatter(dx, dim, indices, dys[0])
                                             : scatter(dx, dim, indices.unsqueeze(dim), dys[0].unsqueeze(dim))};
                           });
  return {ys[0], ys[1]};
}

Tensor arg_of(const char* op, const Tensor& x, std::optional<int64_t> dim, bool keepdim, bool largest) {
  check_defined(op, "input", x);
  autograd::NoGrad off;
  if (dim) return arg_reduce(op, x, *dim, keepdim, largest, false).indices;
  SF_CHECK_AS(IndexError, x.numel() > 0, op, ": input has no elements, got ", x.shape());
  Tensor i = arg_reduce(op, x.reshape({-1}), 0, false, largest, false).indices;
  return keepdim ? i.reshape(Shape::filled(x.ndim(), 1)) : i;
}

Tensor truth(const char* op, Reduction what, const Tensor& x, const Shape& dim, bool keepdim) {
  Dims d = dims_of(op, x, dim, keepdim);
  Tensor y = reduction::run(op, what, x, d, kBool);
  return x.dtype() == kUInt8 ? to_dtype(y, kUInt8) : y;
}

}  // namespace

Tensor amax(const Tensor& input, const Shape& dim, bool keepdim) {
  return extremum("amax", Reduction::Max, input, dim, keepdim);
}
Tensor amin(const Tensor& input, const Shape& dim, bool keepdim) {
  return extremum("amin", Reduction::Min, input, dim, keepdim);
}
std::tuple<Tensor, Tensor> max_dim(const Tensor& input, int64_t dim, bool keepdim) {
  return extremum_with_index("max_dim", input, dim, keepdim, true);
}
std::tuple<Tensor, Tensor> min_dim(const Tensor& input, int64_t dim, bool keepdim) {
  return extremum_with_index("min_dim", input, dim, keepdim, false);
}
Tensor argmax(const Tensor& input, std::optional<int64_t> dim, bool keepdim) {
  return arg_of("argmax", input, dim, keepdim, true);
}
Tensor argmin(const Tensor& input, std::optional<int64_t> dim, bool keepdim) {
  return arg_of("argmin", input, dim, keepdim, false);
}
Tensor any(const Tensor& input, const Shape& dim, bool keepdim) {
  return truth("any", Reduction::Any, input, dim, keepdim);
}
Tensor all(const Tensor& input, const Shape& dim, bool keepdim) {
  return truth("all", Reduction::All, input, dim, keepdim);
}

SF_OP(amax, "input, dim=None, keepdim=False")
    .doc("The largest element over dim (all without it); NaN wins. Equal largest elements share the gradient.")
    .like("torch.amax(input, dim or (), keepdim)")
    .kernels(reduce_kernel);
SF_OP(amin, "input, dim=None, keepdim=False")
    .doc("The smallest element over dim (all without it); NaN wins. Equal smallest elements share the gradient.")
    .like("torch.amin(input, dim or (), keepdim)")
    .kernels(reduce_kernel);
SF_OP(max_dim, "input, dim, keepdim=False")
    .doc("The largest elements along dim and their indices (the first of equals).")
    .like("torch.max(input, dim, keepdim)")
    .kernels(arg_reduce_kernel);
SF_OP(min_dim, "input, dim, keepdim=False")
    .doc("The smallest elements along dim and their indices (the first of equals).")
    .like("torch.min(input, dim, keepdim)")
    .kernels(arg_reduce_kernel);
SF_OP(argmax, "input, dim=None, keepdim=False")
    .doc("The index of the largest element along dim, or in the flattened input; the first of equals.")
    .no_gradient()
    .kernels(arg_reduce_kernel);
SF_OP(argmin, "input, dim=None, keepdim=False")
    .doc("The index of the smallest element along dim, or in the flattened input; the first of equals.")
    .no_gradient()
    .kernels(arg_reduce_kernel);
SF_OP(any, "input, dim=None, keepdim=False")
    .doc("Whether some element over dim is not 0 (all dimensions without it).")
    .like("torch.any(input) if dim is None else torch.any(input, tuple(dim), keepdim)")
    .no_gradient()
    .kernels(reduce_kernel);
SF_OP(all, "input, dim=None, keepdim=False")
    .doc("Whether no element over dim is 0 (all dimensions without it).")
    .like("torch.all(input) if dim is None else torch.all(input, tuple(dim), keepdim)")
    .no_gradient()
    .kernels(reduce_kernel);

}  // namespace sf
