// sum, mean and prod, and what the other reductions share.
#include "scaffolding/ops/reduce/reduce.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce_internal.h"
#include "scaffolding/ops/reduce/scan.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Reduce> reduce_kernel{"reduce"};

namespace reduction {

Dims dims_of(const char* op, const Tensor& x, const Shape& dim, bool keepdim, bool nonempty) {
  check_defined(op, "input", x);
  Dims d{wrap_dims(op, dim, x.ndim()), {}, {}, 1};
  for (int64_t i = 0; i < x.ndim(); ++i) {
    bool reduced = d.reduced.contains(i);
    if (reduced) d.count *= x.shape()[i];
    d.kept.push_back(reduced ? 1 : x.shape()[i]);
    if (!reduced || keepdim) d.result.push_back(reduced ? 1 : x.shape()[i]);
  }
  SF_CHECK_AS(IndexError, !nonempty || d.count > 0, op, ": the reduced dimensions have no elements, got input ",
              x.shape());
  return d;
}

Tensor run(const char* op, Reduction what, const Tensor& x, const Dims& d, DType t, double p, double divisor,
           const Tensor& center) {
  SF_CHECK_AS(TypeError, !is_float8(x.dtype()), op, ": ", x.dtype(), " is storage only; convert it to compute");
  Tensor y = empty(d.result, t, x.device());
  Reduce r{y, x, center, what, p, divisor};
  TensorView full = r.in;
  // Kept dimensions first. The result is seen without the dimensions of 1 that keepdim leaves in it.
  int kept = 0, at = full.ndim - int(d.reduced.size());
  for (int i = 0; i < full.ndim; ++i) {
    int to = d.reduced.contains(i) ? at++ : kept++;
    r.in.sizes[to] = full.sizes[i];
    r.in.strides[to] = full.strides[i];
  }
  for (TensorView* v : {&r.out, &r.center}) {
    if (!*v) continue;
    v->ndim = kept;
    int64_t step = 1;
    for (int i = kept - 1; i >= 0; --i) {
      v->sizes[i] = r.in.sizes[i];
      v->strides[i] = step;
      step *= r.in.sizes[i];
    }
  }
  auto kernel = reduce_kernel.find(x.device(), r);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
  kernel(r);
  return y;
}

TensorView with_last(const Tensor& x, int64_t dim) {
  TensorView v = x;
  if (v.ndim == 0) {
    v.ndim = 1;
    v.sizes[0] = v.strides[0] = 1;
    return v;
  }
  int64_t size = v.sizes[dim], stride = v.strides[dim];
  for (int i = int(dim); i + 1 < v.ndim; ++i) {
    v.sizes[i] = v.sizes[i + 1];
    v.strides[i] = v.strides[i + 1];
  }
  v.sizes[v.ndim - 1] = size;
  v.strides[v.ndim - 1] = stride;
  return v;
}

Tensor spread(const Tensor& dy, const Dims& d, const Shape& full) { return dy.reshape(d.kept).expand(full); }

}  // namespace reduction

using reduction::Dims;
using reduction::dims_of;
using reduction::spread;

namespace {

DType result_dtype(const char* op, const Tensor& x, std::optional<DType> dtype) {
  DType t = dtype.value_or(is_floating(x.dtype()) ? x.dtype() : kInt64);
  SF_CHECK_AS(TypeError, !is_float8(t), op, ": ", t, " is storage only; convert it to compute");
  return t;
}

// The dtype the kernel reads: x itself where it reads x exactly and accumulates at least as widely as t, else x in t.
Tensor operand(const Tensor& x, DType t) {
  bool direct = x.dtype() == t || (is_reduced(x.dtype()) && t == kFloat32) || (!is_floating(x.dtype()) && t == kInt64);
  return direct ? x : to_dtype(x, t);
}
// Kernels add integers to int64; other integer results are converted, wrapping around as torch's sums do.
DType stored_dtype(DType t) { return is_floating(t) ? t : kInt64; }

// The product over the last dimension as a tree of multiplications: differentiable as often as one likes.
Tensor prod_tree(Tensor x) {
  Tensor rest;
  int64_t last = x.ndim() - 1;
  while (x.size(last) > 1) {
    int64_t n = x.size(last), half = n / 2;
    if (n % 2) {
      Tensor odd = x.narrow(last, n - 1, 1);
      rest = rest ? rest * odd : odd;
    }
    x = x.narrow(last, 0, half) * x.narrow(last, half, half);
  }
  if (x.size(last) == 0) return ones(x.narrow(last, 0, 0).select(last, 0).shape(), x.dtype(), x.device());
  return (rest ? x * rest : x).select(last, 0);
}

// x with the reduced dimensions flattened into one, the last.
Tensor reduced_last(const Tensor& x, const Dims& d) {
  Shape order, outer;
  for (int64_t i = 0; i < x.ndim(); ++i)
    if (!d.reduced.contains(i)) {
      order.push_back(i);
      outer.push_back(x.shape()[i]);
    }
  for (auto i : d.reduced) order.push_back(i);
  outer.push_back(d.count);
  return x.permute(order).reshape(outer);
}
Tensor from_reduced_last(const Tensor& g, const Dims& d, const Shape& full) {
  Shape order, moved;
  for (int64_t i = 0; i < full.size(); ++i)
    if (!d.reduced.contains(i)) order.push_back(i);
  for (auto i : d.reduced) order.push_back(i);
  for (auto i : order) moved.push_back(full[i]);
  Shape back = Shape::filled(full.size(), 0);
  for (int64_t i = 0; i < full.size(); ++i) back[order[i]] = i;
  return g.reshape(moved).permute(back);
}

}  // namespace

Tensor sum(const Tensor& input, const Shape& dim, bool keepdim, std::optional<DType> dtype) {
  SF_AUTOCAST(sum, input, dim, keepdim, dtype);
  Dims d = dims_of("sum", input, dim, keepdim);
  DType t = result_dtype("sum", input, dtype);
  Tensor x = operand(input, t);
  Tensor y = to_dtype(reduction::run("sum", Reduction::Sum, x, d, stored_dtype(t)), t);
  return autograd::record("sum", y, {x}, [d, full = x.shape(), from = x.dtype()](const Tensor& dy) -> Tensors {
    return {spread(to_dtype(dy, from), d, full)};
  });
}

Tensor mean(const Tensor& input, const Shape& dim, bool keepdim, std::optional<DType> dtype) {
  check_defined("mean", "input", input);
  DType t = dtype.value_or(input.dtype());
  SF_CHECK_AS(TypeError, is_floating(t) && !is_float8(t), "mean: needs a floating-point dtype, got ", t);
  Dims d = dims_of("mean", input, dim, keepdim);
  Tensor x = operand(input, t);
  Tensor y = reduction::run("mean", Reduction::Sum, x, d, t, 0, double(d.count));
  return autograd::record("mean", y, {x}, [d, full = x.shape(), from = x.dtype()](const Tensor& dy) -> Tensors {
    return {spread(to_dtype(dy, from) / double(d.count), d, full)};
  });
}

Tensor prod(const Tensor& input, const Shape& dim, bool keepdim, std::optional<DType> dtype) {
  SF_AUTOCAST(prod, input, dim, keepdim, dtype);
  Dims d = dims_of("prod", input, dim, keepdim);
  DType t = result_dtype("prod", input, dtype);
  Tensor x = operand(input, t);
  Tensor y = to_dtype(reduction::run("prod", Reduction::Prod, x, d, stored_dtype(t)), t);
  if (!autograd::any_requires_grad({x})) return y;
  // dy/dx_k is the product of the others: those before k times those after k, so that zeros need no special case.
  auto backward = [d, x = autograd::save(x)](const Tensor& dy) -> Tensors {
    Tensor v = x.get(), rows = reduced_last(v, d);
    Tensor others = from_reduced_last(scan::product_of_others(rows), d, v.shape());
    return {spread(to_dtype(dy, v.dtype()), d, v.shape()) * others};
  };
  auto reference = [d, t](const Tensors& in) -> Tensors {
    return {prod_tree(reduced_last(to_dtype(in[0], t), d)).reshape(d.result)};
  };
  return autograd::record("prod", y, {x}, backward, reference);
}

Tensor Tensor::sum(const Shape& dim, bool keepdim, std::optional<DType> dtype) const {
  return sf::sum(*this, dim, keepdim, dtype);
}
Tensor Tensor::mean(const Shape& dim, bool keepdim, std::optional<DType> dtype) const {
  return sf::mean(*this, dim, keepdim, dtype);
}

SF_OP(sum, "input, dim=None, keepdim=False, dtype=None")
    .doc("Sum over dim (all without it); bools and integers sum to int64.")
    .kernels(reduce_kernel);
SF_OP(mean, "input, dim=None, keepdim=False, dtype=None").doc("Mean over dim (all without it).").kernels(reduce_kernel);
SF_OP(prod, "input, dim=None, keepdim=False, dtype=None")
    .doc("Product over dim (all without it).")
    .like("torch.prod(input, dtype=dtype) if dim is None else torch.prod(input, dim[0], keepdim, dtype=dtype)")
    .kernels(reduce_kernel);

}  // namespace sf
