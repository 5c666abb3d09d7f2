#include "scaffolding/core/tensor.h"

#include "scaffolding/core/default_device.h"

namespace sf {

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

static thread_local Device t_default_device;
Device default_device() { return t_default_device; }
DefaultDevice::DefaultDevice(Device device) : before_(t_default_device) { t_default_device = device; }
DefaultDevice::~DefaultDevice() { t_default_device = before_; }

void check_defined(const char* op, const char* name, const Tensor& t) {
  SF_CHECK_AS(TypeError, t.defined(), op, ": ", name, " must be a tensor, got None");
}

void check_shape(const char* op, const char* name, const Tensor& t, const Shape& want) {
  SF_CHECK(!t || t.shape() == want, op, ": ", name, " must have shape ", want, ", got ", t.shape());
}

void check_floating(const char* op, const char* name, const Tensor& t) {
  SF_CHECK_AS(TypeError, is_floating(t.dtype()) && !is_float8(t.dtype()), op, ": ", name,
              " must be a floating-point tensor, got ", t.dtype());
}

void check_same_device(const char* op, const Tensor& a, const Tensor& b) {
  SF_CHECK(!b || a.device() == b.device(), op, ": tensors must be on one device, got ", a.device(), " and ",
           b.device());
}

}  // namespace sf
