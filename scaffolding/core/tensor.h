// Tensor: a strided view of shared storage, with an optional place on the autograd tape.
// A Tensor is a handle (eight bytes): copying it shares the tensor, as in PyTorch. An empty handle means "no tensor".
// Not locked: distinct tensors may be used from distinct threads, one tensor from one thread at a time.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "scaffolding/core/ref.h"
#include "scaffolding/core/scalar.h"
#include "scaffolding/core/shape.h"
#include "scaffolding/core/storage.h"
#include "scaffolding/core/tensor_view.h"

namespace sf {

class Tensor;
using Tensors = std::vector<Tensor>;

enum class MemoryFormat : uint8_t { Preserve, Contiguous, ChannelsLast };

namespace autograd {
class Node;
struct GradMeta;  // gradient, hooks, view base: only tensors that need one have it
}  // namespace autograd

struct TensorImpl : RefCounted, Pooled {
  Ref<Storage> storage;
  void* data = nullptr;  // storage->data + offset, or null
  int64_t offset = 0;    // in elements
  int64_t numel = 0;
  Shape sizes, strides;
  Device device;
  DType dtype = kFloat32;
  bool contiguous = true;
  bool requires_grad = false;   // set by the user on a leaf
  bool is_scalar = false;       // a Python or C++ number made into a tensor: does not widen dtypes
  bool is_parameter = false;    // shown as nn.Parameter in Python
  bool inference = false;       // made in inference_mode: may not be saved for backward
  bool no_grad_view = false;    // a view made while not recording: may not be written in place while recording
  uint32_t output_nr = 0;       // which output of grad_fn
  Ref<autograd::Node> grad_fn;  // null for leaves
  Ref<TensorImpl> base;         // the tensor this is a view of
  uint32_t base_epoch = 0;      // base's inplace_epoch when this view's grad_fn was last in step with it
  uint32_t inplace_epoch = 0;   // recorded in-place writes to this base, directly or through its views
  autograd::GradMeta* meta = nullptr;
  void* python = nullptr;  // the Python object that shows this tensor now, not owned

  static void destroy(TensorImpl* t);
  // A view whose base was written in place since: its grad_fn is made anew when it is next used.
  bool is_stale_view() const { return base && base->inplace_epoch != base_epoch; }
  bool on_tape() const { return grad_fn || (is_stale_view() && base->grad_fn); }
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
  // A tensor over existing storage. Strides in elements.
  static Tensor strided(Ref<Storage> storage, const Shape& sizes, const Shape& strides, int64_t offset, DType dtype);

  explicit operator bool() const { return bool(impl_); }
  bool defined() const { return bool(impl_); }
  TensorImpl* impl() const { return impl_.get(); }
  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }
  operator TensorView() const { return view_of(); }
  TensorView view_of() const;

  // ---- what it is
  const Shape& shape() const { return impl_->sizes; }
  const Shape& sizes() const { return impl_->sizes; }
  const Shape& strides() const { return impl_->strides; }
  int64_t size(int64_t dim) const { return impl_->sizes[wrap_dim("size", dim, ndim())]; }
  int64_t stride(int64_t dim) const { return impl_->strides[wrap_dim("stride", dim, ndim())]; }
  int64_t ndim() const { return impl_->sizes.size(); }
  int64_t dim() const { return ndim(); }
  int64_t numel() const { return impl_->numel; }
  DType dtype() const { return impl_->dtype; }
  Device device() const { return impl_->device; }
  int64_t storage_offset() const { return impl_->offset; }
  const Ref<Storage>& storage() const { return impl_->storage; }
  size_t itemsize() const { return size_of(dtype()); }
  size_t nbytes() const { return size_t(numel()) * itemsize(); }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  bool is_floating_point() const { return is_floating(dtype()); }
  uint32_t version() const { return impl_->storage->version; }
  void* data_ptr() const { return impl_->data; }
  template <class T> T* data() const {
    SF_CHECK_AS(TypeError, dtype_of<T>::value == dtype(), "data: the tensor is ", dtype(), ", asked for as ",
                dtype_of<T>::value);
    return static_cast<T*>(impl_->data);
  }
  double item() const;                    // the one element, as double; ValueError when numel() != 1
  int64_t item_int() const;               // the one element of an integer or bool tensor, exactly
  template <class T> T item() const;      // the one element as a T, of any dtype's; ValueError where it does not fit
  std::vector<double> to_vector() const;  // all elements in row-major order
  std::string str() const;                // torch's repr

  // ---- gradients (autograd/)
  bool requires_grad() const { return impl_ && (impl_->requires_grad || impl_->on_tape()); }
  Tensor& requires_grad_(bool on = true);
  bool is_leaf() const { return !impl_->on_tape(); }
  Tensor grad() const;  // empty when there is none
  void set_grad(const Tensor& g) const;
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false) const;
  Tensor detach() const;  // shares storage, off the tape
  void retain_grad() const;

  // ---- moving and converting
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;
  Tensor cpu() const { return to(Device::CPU); }
  Tensor cuda(int index = 0) const { return to(Device(Device::CUDA, index)); }
  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  Tensor clone() const;
  Tensor& copy_(const Tensor& src);  // converts dtype and device, broadcasts

  // ---- views (ops/view)
  Tensor reshape(const Shape& shape) const;
  Tensor view(const Shape& shape) const;
  Tensor permute(const Shape& dims) const;
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor t() const { return transpose(0, ndim() > 1 ? 1 : 0); }
  Tensor expand(const Shape& shape) const;
  Tensor slice(int64_t dim, std::optional<int64_t> start = {}, std::optional<int64_t> end = {}, int64_t step = 1) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor squeeze(std::optional<int64_t> dim = {}) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor as_strided(const Shape& sizes, const Shape& strides, std::optional<int64_t> offset = {}) const;
  Tensors chunk(int64_t chunks, int64_t dim = 0) const;
  Tensors split(const Shape& sizes, int64_t dim = 0) const;
  Tensors unbind(int64_t dim = 0) const;
  Tensor operator[](int64_t i) const { return select(0, i); }

  // ---- arithmetic (ops/pointwise, ops/reduce, ops/matmul); every op is also a free function
  Tensor& fill_(const Scalar& value);
  Tensor& zero_() { return fill_(0); }
  Tensor& add_(const Tensor& other, const Scalar& alpha = 1);
  Tensor& sub_(const Tensor& other, const Scalar& alpha = 1);
  Tensor& mul_(const Tensor& other);
  Tensor& div_(const Tensor& other);
  Tensor& add_(const Scalar& other);
  Tensor& mul_(const Scalar& other);
  Tensor sum(const Shape& dim = {}, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor mean(const Shape& dim = {}, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor matmul(const Tensor& other) const;

 private:
  Ref<TensorImpl> impl_;
};

// ---- making tensors (ops/factory has the rest: ones, full, arange, randn, ...)
// Throws ValueError for negative sizes and sizes whose bytes overflow.
Tensor empty(const Shape& size, std::optional<DType> dtype = {}, std::optional<Device> device = {});
Tensor empty_strided(const Shape& size, const Shape& strides, DType dtype, Device device);
Tensor empty_like(const Tensor& input, std::optional<DType> dtype = {});  // keeps channels-last and permuted layouts
Tensor zeros(const Shape& size, std::optional<DType> dtype = {}, std::optional<Device> device = {},
             bool requires_grad = false);
Tensor zeros_like(const Tensor& input, std::optional<DType> dtype = {});
Tensor scalar_tensor(const Scalar& value, std::optional<DType> dtype = {}, std::optional<Device> device = {});  // 0-d

// ---- checks with one wording for every op
void check_defined(const char* op, const char* name, const Tensor& t);
void check_shape(const char* op, const char* name, const Tensor& t, const Shape& want);  // an absent tensor passes
void check_floating(const char* op, const char* name, const Tensor& t);
void check_same_device(const char* op, const Tensor& a, const Tensor& b);  // an absent tensor passes

}  // namespace sf
