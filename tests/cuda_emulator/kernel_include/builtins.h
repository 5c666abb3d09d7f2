// What NVRTC knows without a header besides device.h: conversions of bits, loads, functions of C's library. No header
// of the host is seen by a kernel from source (nor does NVRTC see one), so that they are declared here.
#pragma once
#include <device.h>
#include <module.h>

using size_t = decltype(sizeof 0);
using ptrdiff_t = decltype(static_cast<char*>(nullptr) - static_cast<char*>(nullptr));

#define __align__(n) alignas(n)
#define __noinline__ __attribute__((noinline))

struct alignas(8) float2 {
  float x, y;
};
struct float3 {
  float x, y, z;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
template <class T> T __ldg(const T* at) { return *at; }
template <class T> T atomicMax(T* at, T x) {
  T old = *at;
  if (old < x) *at = x;
  return old;
}
template <class T> T atomicMin(T* at, T x) {
  T old = *at;
  if (x < old) *at = x;
  return old;
}

#define SF_EMULATED_1(name)                         \
  extern "C" double name(double) noexcept;          \
  extern "C" float name##f(float) noexcept;         \
  inline float name(float x) { return name##f(x); } \
  static_assert(true)
#define SF_EMULATED_2(name)                                     \
  extern "C" double name(double, double) noexcept;              \
  extern "C" float name##f(float, float) noexcept;              \
  inline float name(float a, float b) { return name##f(a, b); } \
  static_assert(true)
SF_EMULATED_1(exp);
SF_EMULATED_1(exp2);
SF_EMULATED_1(expm1);
SF_EMULATED_1(log);
SF_EMULATED_1(log2);
SF_EMULATED_1(log10);
SF_EMULATED_1(log1p);
SF_EMULATED_1(sqrt);
SF_EMULATED_1(cbrt);
SF_EMULATED_1(sin);
SF_EMULATED_1(cos);
SF_EMULATED_1(tan);
SF_EMULATED_1(asin);
SF_EMULATED_1(acos);
SF_EMULATED_1(atan);
SF_EMULATED_1(sinh);
SF_EMULATED_1(cosh);
SF_EMULATED_1(tanh);
SF_EMULATED_1(erf);
SF_EMULATED_1(erfc);
SF_EMULATED_1(floor);
SF_EMULATED_1(ceil);
SF_EMULATED_1(trunc);
SF_EMULATED_1(rint);
SF_EMULATED_1(round);
SF_EMULATED_1(fabs);
SF_EMULATED_2(pow);
SF_EMULATED_2(atan2);
SF_EMULATED_2(fmod);
SF_EMULATED_2(copysign);
SF_EMULATED_2(fmax);
SF_EMULATED_2(fmin);
SF_EMULATED_2(hypot);
#undef SF_EMULATED_1
#undef SF_EMULATED_2
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline int abs(int x) { return x < 0 ? -x : x; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }

// The instructions that sources name by asm: nvrtc.cpp puts these calls in their places.
namespace cuda_emulator {
inline float float_of_half(unsigned short bits) { return float(__builtin_bit_cast(_Float16, bits)); }
inline unsigned short half_of_float(float x) { return __builtin_bit_cast(unsigned short, _Float16(x)); }
inline float float_of_bfloat16(unsigned short bits) { return __builtin_bit_cast(float, unsigned(bits) << 16); }
inline unsigned short bfloat16_of_float(float x) {
  unsigned bits = __builtin_bit_cast(unsigned, x);
  return static_cast<unsigned short>(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
}  // namespace cuda_emulator
