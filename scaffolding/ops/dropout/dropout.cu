#include "scaffolding/backend/cuda/elementwise.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/dropout/kernel.h"

namespace sf::cuda {
namespace {

template <class T> struct Masked {
  real_t<T> scale;
  __device__ T operator()(T x, bool kept) const {
    return to_storage<T>(real_t<T>(widen(x)) * (kept ? scale : real_t<T>(0)));
  }
};

void apply_mask(const ApplyMask& a) {
  as_float(a.out.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise<T, T, bool>("dropout", Masked<T>{real_t<T>(a.scale)}, a.out, a.in, a.mask);
  });
}
SF_KERNEL(apply_mask_kernel, DeviceType::CUDA, "native", 0, apply_mask,
          [](const ApplyMask& a) { return is_floating(a.out.dtype); })

}  // namespace
}  // namespace sf::cuda
