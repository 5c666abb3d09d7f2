// Whole slices along one dimension, and selection by value.
#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<NonZero> nonzero_kernel{"nonzero"};

namespace {

// A 1-D index for dimension dim of x, checked.
Tensor checked_index(const char* op, const Tensor& x, int64_t dim, const Tensor& index) {
  Tensor at = indexing::as_positions(op, "index", index, x.device());
  SF_CHECK(at.ndim() <= 1, op, ": index must be 1-D, got ", index.shape());
  if (at.ndim() == 0) at = at.reshape({1});
  indexing::check_range(op, at, 0, x.ndim() ? x.shape()[dim] : 1, dim);
  return at;
}

// source's slices written or added to input's.
Tensor put(const char* op, const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source,
           bool accumulate) {
  check_defined(op, "input", input);
  check_defined(op, "source", source);
  int64_t d = wrap_dim(op, dim, input.ndim());
  Tensor x = input.ndim() ? input : input.reshape({1}), s = source.ndim() ? source : source.reshape({1});
  Tensor at = checked_index(op, x, d, index);
  SF_CHECK_AS(TypeError, s.dtype() == x.dtype(), op, ": source must have the dtype of input, ", x.dtype(), ", got ",
              s.dtype());
  SF_CHECK_AS(TypeError, !accumulate || !is_float8(x.dtype()), op, ": ", x.dtype(),
              " cannot be added; convert it first");
  check_same_device(op, x, s);
  Shape want = x.shape();
  want[d] = at.numel();
  SF_CHECK(s.shape() == want, op, ": source must have shape ", want, ", got ", source.shape());
  Tensor y;
  {
    autograd::NoGrad off;
    y = clone(x);
    indexing::put_slices(op, y, d, at, s, accumulate);
  }
  y = autograd::record(op, y, {x, s}, [at = autograd::save(at), d, accumulate](const Tensor& dy) -> Tensors {
    Tensor i = at.get();
    return {accumulate ? dy : index_fill(dy, d, i, 0), index_select(dy, d, i)};
  });
  return input.ndim() ? y : y.reshape({});
}

}  // namespace

Tensor indexing::take_slices(const char* op, const Tensor& x, int64_t d, const Tensor& at) {
  Shape size = x.shape();
  size[d] = at.numel();
  Tensor y = empty(size, x.dtype(), x.device());
  if (y.numel() > 0) {
    autograd::NoGrad off;
    Shape row = Shape::filled(x.ndim(), 1);
    row[d] = at.numel();
    TensorView in = x;
    in.sizes[d] = at.numel();
    in.strides[d] = 0;
    const Tensor places = at.reshape(row);
    Take t{y, in, places.expand(size), x.strides()[d], x.shape()[d]};
    auto kernel = take_kernel.find(x.device(), t);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", x.device());
    kernel(t);
  }
  return y;
}

Tensor index_select(const Tensor& input, int64_t dim, const Tensor& index) {
  check_defined("index_select", "input", input);
  int64_t d = wrap_dim("index_select", dim, input.ndim());
  Tensor x = input.ndim() ? input : input.reshape({1});
  Tensor at = checked_index("index_select", x, d, index);
  SF_CHECK(input.ndim() > 0 || at.numel() == 1, "index_select: a 0-d input takes one index, got ", at.numel());
  Tensor y = autograd::record("index_select", indexing::take_slices("index_select", x, d, at), {x},
                              [at = autograd::save(at), d, full = x.shape()](const Tensor& dy) -> Tensors {
                                Tensor dx = zeros(full, dy.dtype(), dy.device());
                                if (autograd::grad_enabled()) return {index_add(dx, d, at.get(), dy)};
                                indexing::put_slices("index_select", dx, d, at.get(), dy, true);
                                return {dx};
                              });
  return input.ndim() ? y : y.reshape({});
}

Tensor index_add(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha) {
  check_defined("index_add", "source", source);
  bool one = alpha.to_double() == 1;
  SF_CHECK_AS(TypeError, one || !alpha.is_float() || is_floating(source.dtype()),
              "index_add: alpha must be an integer for ", source.dtype());
  return put("index_add", input, dim, index, one ? source : mul(source, wrapped(alpha)), true);
}

Tensor index_copy(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source) {
  SF_AUTOCAST(index_copy, input, dim, index, source);
  return put("index_copy", input, dim, index, source, false);
}

Tensor index_fill(const Tensor& input, int64_t dim, const Tensor& index, const Scalar& value) {
  check_defined("index_fill", "input", input);
  check_defined("index_fill", "index", index);
  SF_CHECK_AS(TypeError, !value.is_float() || is_floating(input.dtype()), "index_fill: a ", input.dtype(),
              " tensor cannot hold ", value.to_double());
  Shape size = input.shape();
  if (size.empty()) size.push_back(1);
  size[wrap_dim("index_fill", dim, input.ndim())] = index.numel();
  return put("index_fill", input, dim, index, scalar_tensor(value, input.dtype(), input.device()).expand(size), false);
}

Tensor nonzero(const Tensor& input) {
  check_defined("nonzero", "input", input);
  SF_CHECK_AS(RuntimeError, !input.device().is_meta(),
              "nonzero: the shape depends on the values, which a meta tensor does not have");
  autograd::NoGrad off;
  Tensor x = contiguous(input);
  int64_t count = 0;
  NonZero k{x, nullptr, &count};
  auto kernel = nonzero_kernel.find(x.device(), k);
  SF_CHECK_AS(NotSupported, kernel, "nonzero: no kernel on ", x.device());
  kernel(k);
  Tensor y = empty({count, x.ndim()}, kInt64, x.device());
  if (y.numel() == 0) return y;
  k.positions = y.data<int64_t>();
  kernel(k);
  return y;
}

Tensor masked_select(const Tensor& input, const Tensor& mask) {
  check_defined("masked_select", "input", input);
  check_defined("masked_select", "mask", mask);
  SF_CHECK_AS(TypeError, mask.dtype() == kBool, "masked_select: mask must be a bool tensor, got ", mask.dtype());
  check_same_device("masked_select", input, mask);
  Shape all = broadcast_shapes("masked_select", input.shape(), mask.shape());
  return index(input.expand(all).reshape({-1}), {mask.expand(all).reshape({-1})});  // one position per element
}

SF_OP(index_select, "input, dim, index").doc("The slices of dim that a 1-D index names.").kernels(take_kernel);
SF_OP(index_add, "input, dim, index, source, alpha=1")
    .doc("input with alpha * source added to the slices of dim that index names.")
    .inplace()
    .kernels(put_kernel);
SF_OP(index_copy, "input, dim, index, source")
    .doc("input with the slices of dim that index names replaced by source's.")
    .inplace()
    .kernels(put_kernel);
SF_OP(index_fill, "input, dim, index, value")
    .doc("input with the slices of dim that index names filled.")
    .inplace()
    .kernels(put_kernel);
SF_OP(nonzero, "input")
    .doc("Positions of elements that are not zero, [count, ndim].")
    .no_gradient()
    .kernels(nonzero_kernel);
SF_OP(masked_select, "input, mask").doc("The elements where mask holds, 1-D.").kernels(take_kernel);

}  // namespace sf
