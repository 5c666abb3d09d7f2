// fill on CUDA: the value's bytes, by the size of the dtype.
#include <cstring>

#include "scaffolding/backend/cuda/elementwise.cuh"
#include "scaffolding/ops/factory/kernel.h"

namespace sf::cuda {
namespace {

template <class U> struct Constant {
  U bits;
  __device__ U operator()() const { return bits; }
};

void fill(const Fill& f) {
  visit_dtype(f.dst.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T v;
    if constexpr (std::is_floating_point_v<T>) v = T(f.real);
    else if constexpr (std::is_integral_v<T>) v = T(f.integer);
    else v = from_float<T>(float(f.real));
    using U = std::conditional_t<
        sizeof(T) == 8, uint64_t,
        std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
    U bits;
    std::memcpy(&bits, &v, sizeof bits);
    elementwise<U>("fill", Constant<U>{bits}, f.dst);
  });
}
SF_KERNEL(fill_kernel, DeviceType::CUDA, "native", 0, fill, nullptr)

}  // namespace
}  // namespace sf::cuda
