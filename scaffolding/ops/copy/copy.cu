// Copy on CUDA: bytes where the dtypes agree, else a conversion per element; the values are those of copy_native.cpp.
#include "scaffolding/backend/cuda/elementwise.cuh"
#include "scaffolding/ops/copy/kernel.h"

namespace sf::cuda {
namespace {

template <class T> inline constexpr bool is_float8_v = std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>;
template <class T> inline constexpr bool is_number = std::is_arithmetic_v<T>;  // a type of C++; the others are bits of short floats

template <class D, class S> struct Convert {
  __device__ D operator()(S s) const {
    if constexpr (is_float8_v<S>) return Convert<D, float>()(to_float(s));
    else if constexpr (!is_number<S>) return Convert<D, float>()(widen(s));
    else if constexpr (std::is_same_v<D, bool>) return s != S(0);
    else if constexpr (is_float8_v<D>) return from_float<D>(float(s));
    else if constexpr (!is_number<D>) return narrow<D>(float(s));
    else if constexpr (std::is_integral_v<D> && std::is_floating_point_v<S>)  // saturates at 64 bits, then wraps around
      return D(s != s ? 0 : s >= S(9.2233720368547758e18) ? INT64_MAX : s <= S(-9.2233720368547758e18) ? INT64_MIN : int64_t(s));
    else return D(s);
  }
};
template <class T> struct Same {
  __device__ T operator()(T x) const { return x; }
};

void copy_same(const Copy& c) {
  switch (size_of(c.dst.dtype)) {
    case 1: return elementwise<uint8_t, uint8_t>("copy", Same<uint8_t>{}, c.dst, c.src);
    case 2: return elementwise<uint16_t, uint16_t>("copy", Same<uint16_t>{}, c.dst, c.src);
    case 4: return elementwise<uint32_t, uint32_t>("copy", Same<uint32_t>{}, c.dst, c.src);
    default: return elementwise<uint64_t, uint64_t>("copy", Same<uint64_t>{}, c.dst, c.src);
  }
}

void copy(const Copy& c) {
  if (c.dst.dtype == c.src.dtype) return copy_same(c);
  visit_dtype(c.dst.dtype, [&](auto d) {
    visit_dtype(c.src.dtype, [&](auto s) {
      using D = typename decltype(d)::type;
      using S = typename decltype(s)::type;
      if constexpr (!std::is_same_v<D, S>) elementwise<D, S>("copy", Convert<D, S>{}, c.dst, c.src);
    });
  });
}
SF_KERNEL(copy_kernel, DeviceType::CUDA, "native", 0, copy, nullptr)

}  // namespace
}  // namespace sf::cuda
