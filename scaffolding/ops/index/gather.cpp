// gather, scatter, scatter_add, take_along_dim: one position per element.
#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Scatter> scatter_kernel{"scatter"};

namespace {

// 0-d tensors count as 1-D.
Tensor at_least_1d(const Tensor& t) { return t.ndim() == 0 ? t.reshape({1}) : t; }

// index must have x's rank and fit into x in every dimension but dim.
Tensor fitting_index(const char* op, const Tensor& x, int64_t dim, const Tensor& index) {
  Tensor at = at_least_1d(indexing::as_positions(op, "index", index, x.device()));
  SF_CHECK(at.ndim() == std::max<int64_t>(x.ndim(), 1), op, ": index must have as many dimensions as input ", x.shape(),
           ", got ", index.shape());
  if (at.numel() == 0) return at;
  for (int64_t i = 0; i < x.ndim(); ++i)
    SF_CHECK(i == dim || at.shape()[i] <= x.shape()[i], op, ": index ", index.shape(),
             " must not be larger than input ", x.shape(), " in dimension ", i);
  return at;
}
void check_positions(const char* op, const Tensor& x, int64_t dim, const Tensor& at) {
  if (at.numel() > 0) indexing::check_range(op, at, 0, x.ndim() ? x.shape()[dim] : 1, dim);
}
// The same with positions that are there.
Tensor checked_index(const char* op, const Tensor& x, int64_t dim, const Tensor& index) {
  Tensor at = fitting_index(op, x, dim, index);
  check_positions(op, x, dim, at);
  return at;
}

// x's memory seen with the index's shape: stride 0 in dim, along which positions are added.
TensorView memory_for(const Tensor& x, const Tensor& index, int64_t dim) {
  TensorView v = x;
  std::copy(index.shape().begin(), index.shape().end(), v.sizes);
  v.strides[dim] = 0;
  return v;
}

void scatter_into(const char* op, const Tensor& out, int64_t dim, const Tensor& at, const Tensor& src,
                  bool accumulate) {
  if (at.numel() == 0) return;
  if (accumulate && is_reduced(out.dtype())) {  // many additions to one place need float32
    Tensor sum = to_dtype(out, kFloat32);
    scatter_into(op, sum, dim, at, to_dtype(src, kFloat32), true);
    return copy_bytes(out, sum);
  }
  Scatter k{memory_for(out, at, dim), src, at, out.strides()[dim], int(dim), accumulate, out.shape()[dim]};
  auto kernel = scatter_kernel.find(out.device(), k);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", out.dtype(), " on ", out.device());
  kernel(k);
}

// The part of src that the index covers; a number is spread over all of it.
Tensor source_for(const char* op, const Tensor& x, const Tensor& index, const Tensor& src) {
  check_defined(op, "src", src);
  if (src.impl()->is_scalar) {
    SF_CHECK_AS(TypeError, !is_floating(src.dtype()) || is_floating(x.dtype()), op, ": a ", x.dtype(),
                " tensor cannot hold ", src.item());
    Tensor number = to_dtype(src, x.dtype());  // written by a kernel: a copy would wait for the device
    if (number.device() != x.device())
      number =
          full({}, is_floating(x.dtype()) ? Scalar(number.item()) : Scalar(number.item_int()), x.dtype(), x.device());
    return number.expand(index.shape());
  }
  SF_CHECK_AS(TypeError, src.dtype() == x.dtype(), op, ": src must have the dtype of input, ", x.dtype(), ", got ",
              src.dtype());
  check_same_device(op, x, src);
  Tensor s = at_least_1d(src);
  SF_CHECK(s.ndim() == index.ndim(), op, ": src must have as many dimensions as index ", index.shape(), ", got ",
           src.shape());
  for (int64_t i = 0; i < index.ndim(); ++i) {
    SF_CHECK(index.numel() == 0 || index.shape()[i] <= s.shape()[i], op, ": index ", index.shape(),
             " must not be larger than src ", src.shape());
    if (index.shape()[i] < s.shape()[i]) s = s.slice(i, 0, index.shape()[i]);
  }
  return s;
}

Tensor scattered(const char* op, const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src,
                 bool accumulate) {
  check_defined(op, "input", input);
  SF_CHECK_AS(TypeError, !accumulate || !is_float8(input.dtype()), op, ": ", input.dtype(),
              " cannot be added; convert it first");
  int64_t d = wrap_dim(op, dim, input.ndim());
  Tensor at = checked_index(op, input, d, index);
  Tensor s = source_for(op, input, at, src);
  Tensor x = at_least_1d(input), y;
  {
    autograd::NoGrad off;
    y = clone(x);
    scatter_into(op, y, d, at, s, accumulate);
  }
  y = autograd::record(op, y, {x, s}, [at = autograd::save(at), d, accumulate](const Tensor& dy) -> Tensors {
    Tensor i = at.get();
    if (i.numel() == 0) return {dy, zeros(i.shape(), dy.dtype(), dy.device())};
    Tensor zero = zeros({}, dy.dtype(), dy.device()).expand(i.shape());
    return {accumulate ? dy : scatter(dy, d, i, zero), gather(dy, d, i)};
  });
  return input.ndim() == 0 ? y.reshape({}) : y;
}

}  // namespace

Tensor gather(const Tensor& input, int64_t dim, const Tensor& index) {
  check_defined("gather", "input", input);
  int64_t d = wrap_dim("gather", dim, input.ndim());
  Tensor at = fitting_index("gather", input, d, index), x = at_least_1d(input);
  bool wrong = false, looks = x.device().is_cpu();  // the kernel does, at what it has in the cache
  if (!looks) check_positions("gather", input, d, at);
  Tensor y = empty(at.shape(), x.dtype(), x.device());
  if (y.numel() > 0) {
    Take t{y, memory_for(x, at, d), at, x.strides()[d], x.shape()[d], looks ? &wrong : nullptr};
    auto kernel = take_kernel.find(x.device(), t);
    SF_CHECK_AS(NotSupported, kernel, "gather: no kernel on ", x.device());
    kernel(t);
    if (wrong) check_positions("gather", input, d, at);  // says which
  }
  y = autograd::record("gather", y, {x}, [at = autograd::save(at), d, full = x.shape()](const Tensor& dy) -> Tensors {
    Tensor dx = zeros(full, dy.dtype(), dy.device());
    if (autograd::grad_enabled()) return {scatter_add(dx, d, at.get(), dy)};
    scatter_into("gather", dx, d, at.get(), dy, true);
    return {dx};
  });
  return index.ndim() == 0 ? y.reshape({}) : y;
}

Tensor scatter(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src) {
  return scattered("scatter", input, dim, index, src, false);
}
Tensor scatter_add(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src) {
  SF_AUTOCAST(scatter_add, input, dim, index, src);
  return scattered("scatter_add", input, dim, index, src, true);
}

Tensor& scatter_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  check_defined("scatter_", "self", self);
  check_defined("scatter_", "src", src);
  if (self.ndim() == 0 || autograd::any_requires_grad({self, src}))
    return autograd::assign_inplace("scatter_", self, scatter(self, dim, index, src));
  autograd::check_inplace("scatter_", self);
  int64_t d = wrap_dim("scatter_", dim, self.ndim());
  Tensor at = checked_index("scatter_", self, d, index), s = source_for("scatter_", self, at, src);
  scatter_into("scatter_", self, d, at, s.storage() == self.storage() ? clone(s) : s, false);
  autograd::bump_version(self);
  return self;
}

Tensor take_along_dim(const Tensor& input, const Tensor& indices, std::optional<int64_t> dim) {
  check_defined("take_along_dim", "input", input);
  check_defined("take_along_dim", "indices", indices);
  if (!dim) return gather(input.reshape({input.numel()}), 0, indices.reshape({indices.numel()}));
  SF_CHECK(input.ndim() == indices.ndim(), "take_along_dim: input and indices must have as many dimensions, got ",
           input.shape(), " and ", indices.shape());
  int64_t d = wrap_dim("take_along_dim", *dim, input.ndim());
  if (input.ndim() == 0) return gather(input, 0, indices);
  Shape x = input.shape(), at = indices.shape();
  x[d] = at[d] = 1;
  Shape all = broadcast_shapes("take_along_dim", x, at);
  x = at = all;
  x[d] = input.shape()[d];
  at[d] = indices.shape()[d];
  return gather(input.expand(x), d, indices.expand(at));
}

SF_OP(gather, "input, dim, index")
    .doc("y[i][j] = input[index[i][j]][j] for dim=0, and so on: one position per element.")
    .kernels(take_kernel);
SF_OP(scatter, "input, dim, index, src")
    .doc("input with src written at y[index[i][j]][j] for dim=0, and so on.")
    .like(
        "torch.scatter(input, dim, index, src) if isinstance(src, torch.Tensor) else torch.scatter(input, dim, index, "
        "value=src)")
    .inplace()
    .kernels(scatter_kernel);
SF_OP(scatter_add, "input, dim, index, src")
    .doc("input with src added at y[index[i][j]][j] for dim=0, and so on.")
    .inplace()
    .kernels(scatter_kernel);
SF_OP(take_along_dim, "input, indices, dim=None")
    .doc("gather that broadcasts; without dim both are flattened.")
    .like("torch.take_along_dim(input, indices, dim) if dim is not None else torch.take_along_dim(input, indices)")
    .kernels(take_kernel);

}  // namespace sf
