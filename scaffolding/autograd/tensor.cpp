// What core/tensor.h promises and only the tape can give: the making and the end of a tensor, which carry its place
// there, and its gradient.
#include "scaffolding/core/tensor.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/default_device.h"
#include "scaffolding/core/print.h"

namespace sf {
using namespace autograd;

// ---- making and ending

void TensorImpl::destroy(TensorImpl* t) {
  delete t->meta;
  delete t;
}

static bool contiguous_in(const Shape& sizes, const Shape& strides) {
  int64_t want = 1;
  for (int64_t i = sizes.size() - 1; i >= 0; --i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != want) return false;
    want *= sizes[i];
  }
  return true;
}

// All but strides, numel and contiguous.
static Ref<TensorImpl> header(Ref<Storage> storage, const Shape& sizes, int64_t offset, DType dtype) {
  auto t = Ref<TensorImpl>::fresh(new TensorImpl);
  t->data = storage->data ? static_cast<char*>(storage->data) + offset * int64_t(size_of(dtype)) : nullptr;
  t->device = storage->device;
  t->storage = std::move(storage);
  t->offset = offset;
  t->sizes = sizes;
  t->dtype = dtype;
  t->inference = inference_mode_enabled();
  return t;
}

Tensor Tensor::strided(Ref<Storage> storage, const Shape& sizes, const Shape& strides, int64_t offset, DType dtype) {
  Ref<TensorImpl> t = header(std::move(storage), sizes, offset, dtype);
  t->strides = strides;
  int64_t n = 1;
  for (auto d : sizes) n *= d;
  t->numel = n;
  t->contiguous = contiguous_in(sizes, strides);
  return Tensor(std::move(t));
}

static size_t checked_bytes(const Shape& size, int64_t numel, DType dtype) {
  size_t bytes;
  SF_CHECK(!__builtin_mul_overflow(size_t(numel), size_of(dtype), &bytes) && bytes < (size_t(1) << 62), "empty: ", size,
           " of ", dtype, " needs more bytes than can be addressed");
  return bytes;
}

Tensor empty(const Shape& size, std::optional<DType> dtype, std::optional<Device> device) {
  DType t = dtype.value_or(default_dtype());
  int64_t n = numel(size);
  Ref<TensorImpl> y =
      header(Storage::allocate(checked_bytes(size, n, t), device ? *device : default_device()), size, 0, t);
  y->strides = contiguous_strides(size);
  y->numel = n;
  return Tensor(std::move(y));
}

Tensor empty_strided(const Shape& size, const Shape& strides, DType dtype, Device device) {
  SF_CHECK(size.size() == strides.size(), "empty_strided: sizes ", size, " and strides ", strides, " differ in length");
  checked_bytes(size, numel(size), dtype);
  int64_t span = 1;  // elements from the first to one past the last
  for (int64_t i = 0; i < size.size(); ++i) {
    SF_CHECK(strides[i] >= 0, "empty_strided: strides must not be negative, got ", strides);
    int64_t step;
    SF_CHECK(!__builtin_mul_overflow(std::max<int64_t>(size[i] - 1, 0), strides[i], &step) &&
                 !__builtin_add_overflow(span, step, &span) && span < (int64_t(1) << 59),
             "empty_strided: ", size, " with strides ", strides, " needs more bytes than can be addressed");
  }
  size_t bytes = numel(size) == 0 ? 0 : size_t(span) * size_of(dtype);
  return Tensor::strided(Storage::allocate(bytes, device), size, strides, 0, dtype);
}

Tensor empty_like(const Tensor& x, std::optional<DType> dtype) {
  DType t = dtype.value_or(x.dtype());
  if (x.is_contiguous()) return empty(x.shape(), t, x.device());
  // Keep the order of dimensions in memory: rank them by stride and lay them out densely in that order.
  int64_t n = x.ndim();
  int order[kMaxDims];
  for (int i = 0; i < n; ++i) {
    if (x.strides()[i] == 0 && x.shape()[i] > 1) return empty(x.shape(), t, x.device());  // expanded: no order to keep
    order[i] = i;
  }
  std::stable_sort(order, order + n, [&](int a, int b) { return x.strides()[a] > x.strides()[b]; });
  Shape strides = Shape::filled(n, 1);
  int64_t step = 1;
  for (int64_t i = n - 1; i >= 0; --i) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(x.shape()[order[i]], 1);
  }
  return empty_strided(x.shape(), strides, t, x.device());
}

// ---- gradients

Tensor& Tensor::requires_grad_(bool on) {
  SF_CHECK_AS(TypeError, !on || (is_floating(dtype()) && !is_float8(dtype())),
              "requires_grad_: only floating-point tensors have gradients, got ", dtype());
  SF_CHECK_AS(RuntimeError, on || is_leaf(), "requires_grad_: only a leaf can be taken off the tape; use detach()");
  SF_CHECK_AS(RuntimeError, !on || !impl_->inference || inference_mode_enabled(),
              "requires_grad_: the tensor was made in inference_mode; clone it outside first");
  if (is_leaf()) impl_->requires_grad = on;
  return *this;
}

Tensor Tensor::grad() const {
  if (!impl_ || !impl_->meta) return {};
  return impl_->meta->retained && impl_->on_tape() ? *impl_->meta->retained : impl_->meta->grad;
}

void Tensor::set_grad(const Tensor& g) const {
  if (!g && !impl_->meta) return;
  if (g) {
    SF_CHECK(g.shape() == shape(), "grad: must have the tensor's shape ", shape(), ", got ", g.shape());
    SF_CHECK(g.device() == device(), "grad: must be on the tensor's device ", device(), ", got ", g.device());
  }
  GradMeta& meta = meta_of(*this);
  (meta.retained && impl_->on_tape() ? *meta.retained : meta.grad) = g;
}

Tensor Tensor::detach() const {
  auto t = Ref<TensorImpl>::fresh(new TensorImpl);
  t->storage = impl_->storage;
  t->data = impl_->data;
  t->offset = impl_->offset;
  t->numel = impl_->numel;
  t->sizes = impl_->sizes;
  t->strides = impl_->strides;
  t->device = impl_->device;
  t->dtype = impl_->dtype;
  t->contiguous = impl_->contiguous;
  t->inference = impl_->inference;
  t->is_scalar = impl_->is_scalar;
  return Tensor(std::move(t));
}

void Tensor::retain_grad() const {
  SF_CHECK_AS(RuntimeError, defined() && requires_grad(), "retain_grad: the tensor does not require a gradient");
  if (is_leaf() || (impl_->meta && impl_->meta->retained)) return;
  Edge e = edge_of(*this);
  auto& slot = meta_of(*this).retained = std::make_shared<Tensor>();
  e.node->hooks_or_new().retained.push_back({e.nr, slot});
}

std::string place_on_tape(const Tensor& t) {
  if (Edge edge = edge_of(t); edge.node) return "grad_fn=<" + grad_fn_name(edge.node->name()) + ">";
  return t.requires_grad() ? "requires_grad=True" : "";
}

}  // namespace sf
