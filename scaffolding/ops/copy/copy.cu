// Copy on CUDA: bytes where the dtypes agree, else a conversion per element; the values are those of copy_native.cpp.
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/copy/transpose.cuh"
#include "scaffolding/ops/quantize/fp8_codes.cuh"

namespace sf::cuda {
namespace {

template <class T> inline constexpr bool is_float8_v = std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>;
// a type of C++; the others are bits of short floats
template <class T> inline constexpr bool is_number = std::is_arithmetic_v<T>;

template <class D, class S> struct Convert {
  __device__ D operator()(S s) const {
    if constexpr (is_float8_v<S>) return Convert<D, float>()(value_of(s));
    else if constexpr (!is_number<S>) return Convert<D, float>()(widen(s));
    else if constexpr (std::is_same_v<D, bool>) return s != S(0);
    else if constexpr (is_float8_v<D>) return cast_to<D>(float(s));
    else if constexpr (!is_number<D>) return narrow<D>(float(s));
    else if constexpr (std::is_integral_v<D> && std::is_floating_point_v<S>)  // saturates at 64 bits, then wraps around
      return D(s != s                           ? 0
               : s >= S(9.2233720368547758e18)  ? INT64_MAX
               : s <= S(-9.2233720368547758e18) ? INT64_MIN
                                                : int64_t(s));
    else return D(s);
  }
};
template <class T> struct Same {
  __device__ T operator()(T x) const { return x; }
};

struct alignas(16) Sixteen {
  uint64_t v[2];
};

template <class U> void move_units(const cpu::StridedLoop& loop, Device device) {
  elementwise<U, U>("copy", device, Same<U>{}, loop);
}

// Where both sides are dense along dimension 0, elements are moved in the largest units that rows and addresses allow.
void copy_same(const Copy& c) {
  cpu::StridedLoop loop{&c.dst, &c.src};
  Device device = c.dst.device;
  int64_t unit = int64_t(size_of(c.dst.dtype));
  if (loop.strides[0][0] == unit && loop.strides[1][0] == unit && loop.ndim > 1) {
    int64_t all = loop.sizes[0] * unit, least = unit;
    for (int k = 0; k < 2; ++k) {
      all |= int64_t(reinterpret_cast<uintptr_t>(loop.data[k]));
      for (int d = 1; d < loop.ndim; ++d) all |= loop.strides[k][d];
    }
    while (unit < 16 && all % (2 * unit) == 0) unit *= 2;
    loop.sizes[0] = loop.sizes[0] * least / unit;
    loop.strides[0][0] = loop.strides[1][0] = unit;
  }
  switch (unit) {
    case 1:
      return transpose<uint8_t, uint8_t>("copy", device, Same<uint8_t>{}, loop) ? void()
                                                                                : move_units<uint8_t>(loop, device);
    case 2:
      return transpose<uint16_t, uint16_t>("copy", device, Same<uint16_t>{}, loop) ? void()
                                                                                   : move_units<uint16_t>(loop, device);
    case 4:
      return transpose<uint32_t, uint32_t>("copy", device, Same<uint32_t>{}, loop) ? void()
                                                                                   : move_units<uint32_t>(loop, device);
    case 8:
      return transpose<uint64_t, uint64_t>("copy", device, Same<uint64_t>{}, loop) ? void()
                                                                                   : move_units<uint64_t>(loop, device);
    default: return move_units<Sixteen>(loop, device);
  }
}

template <class T>
inline constexpr bool trains = std::is_same_v<T, float> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

void copy(const Copy& c) {
  if (c.dst.dtype == c.src.dtype) return copy_same(c);
  visit_dtype(c.dst.dtype, [&](auto d) {
    visit_dtype(c.src.dtype, [&](auto s) {
      using D = typename decltype(d)::type;
      using S = typename decltype(s)::type;
      if constexpr (!std::is_same_v<D, S>) {
        cpu::StridedLoop loop{&c.dst, &c.src};
        if constexpr (trains<D> && trains<S>)
          if (transpose<D, S>("copy", c.dst.device, Convert<D, S>{}, loop)) return;
        elementwise<D, S>("copy", c.dst.device, Convert<D, S>{}, loop);
      }
    });
  });
}
SF_KERNEL(copy_kernel, DeviceType::CUDA, "native", 0, copy, nullptr)

}  // namespace
}  // namespace sf::cuda
