#include "scaffolding/ops/copy/pinned.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/ops/copy/copy.h"

namespace sf {

static Tensor pinned_strided(const Shape& size, const Shape& strides, DType dtype) {
  Accelerator& gpu = accelerator(Device(Device::CUDA));
  int64_t last = 0;  // element
  for (int64_t i = 0; i < size.size(); ++i) last += (size[i] - 1) * strides[i];
  size_t bytes = size.contains(0) ? 0 : size_t(last + 1) * size_of(dtype);
  void* data = gpu.allocate_pinned(bytes);
  return Tensor::strided(Storage::borrow(data, bytes, Device::CPU, [&gpu, data] { gpu.release_pinned(data); }), size,
                         strides, 0, dtype);
}

Tensor empty_pinned(const Shape& size, std::optional<DType> dtype) {
  DType t = dtype.value_or(default_dtype());
  Tensor checked = empty(size, t, Device(Device::Meta));  // sizes, and whether their bytes overflow
  return pinned_strided(size, checked.strides(), t);
}

bool is_pinned(const Tensor& x) {
  check_defined("is_pinned", "input", x);
  Accelerator* gpu = x.device().is_cpu() ? loaded_accelerator() : nullptr;
  return gpu && x.data_ptr() && gpu->is_pinned(x.data_ptr());
}

Tensor pin_memory(const Tensor& x) {
  check_defined("pin_memory", "input", x);
  SF_CHECK(x.device().is_cpu(), "pin_memory: only memory of the CPU can be pinned, got a tensor on ", x.device());
  if (is_pinned(x)) return x;
  Tensor like = empty_like(x.to(Device(Device::Meta)));  // its layout, where that is dense
  Tensor y = pinned_strided(x.shape(), like.strides(), x.dtype());
  copy_bytes(y, x);
  return autograd::record("pin_memory", y, {x}, [](const Tensor& dy) -> Tensors { return {dy}; });
}

}  // namespace sf
