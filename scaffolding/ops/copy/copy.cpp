#include "scaffolding/ops/copy/copy.h"

#include <cmath>
#include <limits>
#include <utility>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/cpu/sealed_pages.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/copy/pinned.h"
#include "scaffolding/ops/copy/reverse.h"
#include "scaffolding/ops/copy/transpose.h"
#include "scaffolding/ops/copy/whole_numbers.h"
#include "scaffolding/ops/pointwise/trace.h"

namespace sf {
using autograd::record;

constinit KernelTable<Copy> copy_kernel{"copy"};
KernelTable<TransposedTiles> transpose_tiles("transpose_tiles");
KernelTable<ReversedGroups> reverse_groups("reverse_groups");
KernelTable<WholeNumbers> whole_numbers("whole_numbers");

static Tensor detached_expand(const Tensor& x, const Shape& shape) {
  autograd::NoGrad off;
  return x.shape() == shape ? x : x.expand(shape);
}

// Elements of the same index lie in the same place of both; sizes are equal.
static bool same_layout(const Tensor& a, const Tensor& b) {
  for (int64_t d = 0; d < a.ndim(); ++d)
    if (a.shape()[d] > 1 && a.strides()[d] != b.strides()[d]) return false;
  return true;
}

Tensor packed(const Tensor& x) {
  if (x.is_contiguous()) return x;
  autograd::NoGrad off;
  Tensor nowhere = empty_strided(x.shape(), x.strides(), x.dtype(), Device::Meta);
  return same_layout(x, empty_like(nowhere)) ? x : clone(x);
}

void copy_bytes(const Tensor& dst, const Tensor& src) { copy_bytes(dst, src, false); }

void copy_bytes(const Tensor& dst, const Tensor& src, bool non_blocking) {
  if (dst.numel() == 0) return;
  cpu::will_write(dst);
  Tensor from = detached_expand(src, dst.shape());
  if (dst.device() == from.device() || (dst.device().is_cpu() && from.device().is_cpu())) {
    if (dst.device().is_meta()) return;
    Copy c{dst, from};
    auto kernel = copy_kernel.find(dst.device().is_cpu() ? Device() : dst.device(), c);
    SF_CHECK_AS(NotSupported, kernel, "copy: no kernel for ", from.dtype(), " to ", dst.dtype(), " on ", dst.device());
    kernel(c);
    return;
  }
  SF_CHECK_AS(RuntimeError, !from.device().is_meta() && !dst.device().is_meta(), "copy: a meta tensor has no values");
  // Across devices: convert and pack on the source, move the bytes,
  // scatter on the destination where its layout is another.
  autograd::NoGrad off;
  Tensor dense = packed(to_dtype(from, dst.dtype()));
  bool direct = same_layout(dense, dst);
  if (!direct) dense = contiguous(dense);
  Tensor landing = direct || dst.is_contiguous() ? dst : empty(dst.shape(), dst.dtype(), dst.device());
  Device gpu = dst.device().is_cpu() ? dense.device() : dst.device();
  // Pageable memory is read by the time a copy returns, but the GPU must not write it later.
  bool queued = non_blocking && gpu.is_cuda() && (dst.device().is_cpu() ? is_pinned(landing) : dense.device().is_cpu());
  if (queued)
    accelerator(gpu).copy_async(landing.data_ptr(), dst.device(), dense.data_ptr(), dense.device(), dense.nbytes());
  else backend(gpu).copy(landing.data_ptr(), dst.device(), dense.data_ptr(), dense.device(), dense.nbytes());
  if (landing.storage() != dst.storage()) copy_bytes(dst, landing);
}

Tensor to_dtype(const Tensor& x, DType dtype) {
  check_defined("to", "input", x);
  if (x.dtype() == dtype) return x;
  Tensor y = empty_like(x, dtype);
  copy_bytes(y, x);
  if (y.device().is_meta()) [[unlikely]]
    if (auto* trace = pointwise::Trace::current()) trace->cast(x, y);
  if (!is_floating(dtype)) return y;
  return record("to", y, {x}, [from = x.dtype()](const Tensor& dy) -> Tensors { return {to_dtype(dy, from)}; });
}

Tensor to_device(const Tensor& x, Device device) { return to_device(x, device, false); }

Tensor to_device(const Tensor& x, Device device, bool non_blocking) {
  check_defined("to", "input", x);
  if (x.device() == device) return x;
  Tensor from = device.is_meta() ? x : packed(x), y;
  if (non_blocking && device.is_cpu() && x.device().is_cuda())
    y = Tensor::strided(empty_pinned(x.shape(), x.dtype()).storage(), x.shape(), from.strides(), 0, x.dtype());
  else
    y = from.is_contiguous() ? empty(x.shape(), x.dtype(), device)
                             : empty_strided(x.shape(), from.strides(), x.dtype(), device);
  if (!device.is_meta()) copy_bytes(y, from, non_blocking);
  return record("to", y, {x}, [from = x.device()](const Tensor& dy) -> Tensors { return {to_device(dy, from)}; });
}

Tensor clone(const Tensor& x) {
  check_defined("clone", "input", x);
  Tensor y = empty_like(x);
  copy_bytes(y, x);
  return record("clone", y, {x}, [](const Tensor& dy) -> Tensors { return {dy}; });
}

Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", "input", x);
  if (x.is_contiguous()) return x;
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  copy_bytes(y, x);
  return record("contiguous", y, {x}, [](const Tensor& dy) -> Tensors { return {dy}; });
}

Tensor to_channels_last(const Tensor& x) {
  check_defined("to_channels_last", "input", x);
  if (x.is_contiguous(MemoryFormat::ChannelsLast)) return x;
  Tensor y = empty_strided(x.shape(), channels_last_strides(x.shape()), x.dtype(), x.device());
  copy_bytes(y, x);
  return record("to_channels_last", y, {x}, [](const Tensor& dy) -> Tensors { return {dy}; });
}

Tensor Tensor::to(DType dtype) const { return to_dtype(*this, dtype); }
Tensor Tensor::to(Device device) const { return to_device(*this, device); }
Tensor Tensor::clone() const { return sf::clone(*this); }
Tensor Tensor::contiguous(MemoryFormat format) const {
  return format == MemoryFormat::ChannelsLast ? to_channels_last(*this) : sf::contiguous(*this);
}

Tensor& Tensor::copy_(const Tensor& src) { return copy_into(*this, src, false); }

Tensor& copy_into(Tensor& self, const Tensor& src, bool non_blocking) {
  check_defined("copy_", "src", src);
  SF_CHECK(broadcast_shapes("copy_", src.shape(), self.shape()) == self.shape(), "copy_: src of shape ", src.shape(),
           " does not broadcast to ", self.shape());
  if (!autograd::any_requires_grad({self, src})) {
    autograd::check_inplace("copy_", self);
    bool overlap = src.storage() == self.storage() && !src.is_same(self);  // x[1:].copy_(x[:-1])
    copy_bytes(self, overlap ? src.clone() : src, non_blocking);
    autograd::bump_version(self);
    return self;
  }
  Tensor value = to_dtype(to_device(src, self.device()), self.dtype());
  return autograd::assign_inplace("copy_", self, value.shape() == self.shape() ? value : value.expand(self.shape()));
}

// ---- to numbers of the host

// f(value) of a tensor's one element.
template <class F> static auto visit_item(const Tensor& x, F f) {
  SF_CHECK(x.defined() && x.numel() == 1, "item: needs a tensor with one element, got ",
           x.defined() ? sf::str(x.shape()) : "no tensor");
  SF_CHECK_AS(RuntimeError, !x.device().is_meta(), "item: a meta tensor has no values");
  char bytes[8];
  if (x.device().is_cpu()) std::copy_n(static_cast<const char*>(x.data_ptr()), x.itemsize(), bytes);
  else backend(x.device()).copy(bytes, Device::CPU, x.data_ptr(), x.device(), x.itemsize());
  return visit_dtype(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T v;
    std::copy_n(bytes, sizeof v, reinterpret_cast<char*>(&v));
    if constexpr (std::is_arithmetic_v<T>) return f(v);
    else return f(to_float(v));
  });
}

double Tensor::item() const {
  return visit_item(*this, [](auto v) { return double(v); });
}

int64_t Tensor::item_int() const {
  return visit_item(*this, [](auto v) { return int64_t(v); });
}

template <class T> T Tensor::item() const {
  return visit_item(*this, [&](auto v) -> T {
    if constexpr (std::is_same_v<T, bool>) {
      return v != 0;
    } else if constexpr (std::is_integral_v<T>) {
      bool fits;
      if constexpr (std::is_integral_v<decltype(v)>) fits = std::in_range<T>(int64_t(v));
      else
        fits = v >= -std::ldexp(1.0, std::numeric_limits<T>::digits) * std::is_signed_v<T> &&
               v < std::ldexp(1.0, std::numeric_limits<T>::digits);
      SF_CHECK(fits, "item: ", +v, " is no ", dtype_of<T>::value);
      return T(v);
    } else if constexpr (std::is_floating_point_v<T>) {
      return T(v);
    } else {
      return from_float<T>(float(v));
    }
  });
}
template bool Tensor::item<bool>() const;
template uint8_t Tensor::item<uint8_t>() const;
template int8_t Tensor::item<int8_t>() const;
template int16_t Tensor::item<int16_t>() const;
template int32_t Tensor::item<int32_t>() const;
template int64_t Tensor::item<int64_t>() const;
template Half Tensor::item<Half>() const;
template BFloat16 Tensor::item<BFloat16>() const;
template float Tensor::item<float>() const;
template double Tensor::item<double>() const;

std::vector<double> Tensor::to_vector() const {
  Tensor x = detach().to(Device::CPU).to(kFloat64).contiguous();
  return {x.data<double>(), x.data<double>() + x.numel()};
}

SF_OP(clone, "input").doc("A copy of input with storage of its own.").kernels(copy_kernel);
SF_OP(contiguous, "input")
    .doc("input in row-major memory: itself, or a copy.")
    .like("input.contiguous()")
    .kernels(copy_kernel);

}  // namespace sf
