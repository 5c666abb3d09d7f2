#include "scaffolding/core/tensor.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/core/default_device.h"

namespace sf {

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
  t->inference = autograd::inference_mode_enabled();
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

TensorView Tensor::view_of() const {
  TensorView v;
  if (!impl_) return v;
  v.data = impl_->data;
  v.ndim = int32_t(impl_->sizes.size());
  v.dtype = impl_->dtype;
  v.device = impl_->device;
  std::copy(impl_->sizes.begin(), impl_->sizes.end(), v.sizes);
  std::copy(impl_->strides.begin(), impl_->strides.end(), v.strides);
  return v;
}

bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format != MemoryFormat::ChannelsLast) return impl_->contiguous;
  return view_of().is_channels_last();
}

static size_t checked_bytes(const Shape& size, int64_t numel, DType dtype) {
  size_t bytes;
  SF_CHECK(!__builtin_mul_overflow(size_t(numel), size_of(dtype), &bytes) && bytes < (size_t(1) << 62), "empty: ", size, " of ", dtype,
           " needs more bytes than can be addressed");
  return bytes;
}

static thread_local Device t_default_device;
Device default_device() { return t_default_device; }
DefaultDevice::DefaultDevice(Device device) : before_(t_default_device) { t_default_device = device; }
DefaultDevice::~DefaultDevice() { t_default_device = before_; }

Tensor empty(const Shape& size, std::optional<DType> dtype, std::optional<Device> device) {
  DType t = dtype.value_or(default_dtype());
  int64_t n = numel(size);
  Ref<TensorImpl> y = header(Storage::allocate(checked_bytes(size, n, t), device.value_or(default_device())), size, 0, t);
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
    SF_CHECK(!__builtin_mul_overflow(std::max<int64_t>(size[i] - 1, 0), strides[i], &step) && !__builtin_add_overflow(span, step, &span) &&
                 span < (int64_t(1) << 59),
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

double Tensor::item() const {
  SF_CHECK(defined() && numel() == 1, "item: needs a tensor with one element, got ", defined() ? sf::str(shape()) : "no tensor");
  SF_CHECK_AS(RuntimeError, !device().is_meta(), "item: a meta tensor has no values");
  char bytes[8];
  if (device().is_cpu()) std::copy_n(static_cast<const char*>(data_ptr()), itemsize(), bytes);
  else backend(device()).copy(bytes, Device::CPU, data_ptr(), device(), itemsize());
  return visit_dtype(dtype(), [&](auto tag) -> double {
    using T = typename decltype(tag)::type;
    T v;
    std::copy_n(bytes, sizeof v, reinterpret_cast<char*>(&v));
    if constexpr (std::is_arithmetic_v<T>) return double(v);
    else return to_float(v);
  });
}

int64_t Tensor::item_int() const {
  if (dtype() != kInt64 || !device().is_cpu() || numel() != 1) return int64_t(item());
  return *data<int64_t>();
}

std::vector<double> Tensor::to_vector() const {
  Tensor x = detach().to(Device::CPU).to(kFloat64).contiguous();
  return {x.data<double>(), x.data<double>() + x.numel()};
}

void check_defined(const char* op, const char* name, const Tensor& t) { SF_CHECK_AS(TypeError, t.defined(), op, ": ", name, " must be a tensor, got None"); }

void check_shape(const char* op, const char* name, const Tensor& t, const Shape& want) {
  SF_CHECK(!t || t.shape() == want, op, ": ", name, " must have shape ", want, ", got ", t.shape());
}

void check_floating(const char* op, const char* name, const Tensor& t) {
  SF_CHECK_AS(TypeError, is_floating(t.dtype()) && !is_float8(t.dtype()), op, ": ", name, " must be a floating-point tensor, got ", t.dtype());
}

void check_same_device(const char* op, const Tensor& a, const Tensor& b) {
  SF_CHECK(!b || a.device() == b.device(), op, ": tensors must be on one device, got ", a.device(), " and ", b.device());
}

}  // namespace sf
