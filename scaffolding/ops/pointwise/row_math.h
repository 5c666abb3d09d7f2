// What the pointwise expressions need beyond simd_math.h, and integers with the same operators.
// Included only by *.cpu.cpp files of this folder and of fuse/.
#pragma once
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/backend/cpu/simd_math.h"
#include "scaffolding/backend/cpu/simd_short.h"
#include "scaffolding/ops/pointwise/kernel.h"

namespace sf {
namespace SF_ISA {

template <class T> SF_INLINE T zero(T) { return T(0); }
template <class T> SF_INLINE T times(T x, T p) { return x * p; }
template <class T> SF_INLINE T square_of(T x) { return x * x; }
// log(1 + exp(x)) without overflow.
template <class T> SF_INLINE T softplus_of(T x) { return max(x, T(0)) + log1p(exp(-abs(x))); }

// x Phi(x), Phi being the normal distribution's cdf, and its derivative Phi(x) + x phi(x).
template <class T> SF_INLINE T gelu_of(T x) {
  T density;
  return x * normal_cdf(x, density);
}
template <class T> SF_INLINE T gelu_slope_of(T x) {
  T density, cdf = normal_cdf(x, density);
  return cdf + x * density;
}

SF_INLINE double fmod(double a, double b) { return __builtin_fmod(a, b); }
SF_INLINE double remainder(double a, double b) {
  double m = fmod(a, b);
  return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}
// As torch: the division is made exact first, so that floor_divide(a, b) * b + remainder(a, b) == a.
SF_INLINE double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  double m = fmod(a, b), d = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) d -= 1;
  if (d == 0) return __builtin_copysign(0.0, a / b);
  double f = __builtin_floor(d);
  return d - f > 0.5 ? f + 1 : f;
}
SF_INLINE vm differ_in_sign(vf x, vf y) { return vm{(bits(x) ^ bits(y)) < 0} & (x != vf(0.f)); }
SF_INLINE vf fmod(vf a, vf b) {
#if defined(__AVX512F__) || defined(__FMA__)
  // A quotient rounded up to a whole number is one too large; a - q b has the other sign then. Either is exact: what is
  // left of a is, and b taken from it has fewer digits.
  const vf q = trunc(a / b);
  const vm simple = (abs(q) < vf(0x1p24f)) & (abs(b) < vf(__builtin_inff()));
  if (!any(!simple)) {
    const vf m = fma(-q, b, a);
    return copysign(select(differ_in_sign(m, a), m + copysign(b, a), m), a);
  }
#endif
  for (int i = 0; i < kLanes; ++i) a.v[i] = __builtin_fmodf(a.v[i], b.v[i]);
  return a;
}
SF_INLINE vf remainder(vf a, vf b) {
  const vf m = fmod(a, b);
  return select(differ_in_sign(m, b), m + b, m);
}
SF_INLINE vf floor_divide(vf a, vf b) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = float(floor_divide(double(a.v[i]), double(b.v[i])));
  return a;
}

#include "scaffolding/ops/pointwise/expressions.h"
#include "scaffolding/ops/pointwise/wrapping_int.h"

// Activations that bfloat16 results get by shorter formulas; the others are bound by memory as they are.
template <class F, class T>
inline constexpr bool kShorter = kShort<T> && (std::is_same_v<F, gelu_erf_fn> || std::is_same_v<F, silu_fn>);
template <class F, class T> SF_INLINE vf value_for(vf x, vf p0, vf p1) {
  if constexpr (!kShorter<F, T>) return F::template y<vf>(x, p0, p1);
  else if constexpr (std::is_same_v<F, silu_fn>) return silu_for<T>(x);
  else return gelu_short(x);
}

// start + weight * (end - start), the form that is exact at the nearer end (as torch's).
template <class T> SF_INLINE T lerp_of(T a, T b, T w) {
  return select(abs(w) < T(0.5), a + w * (b - a), b - (b - a) * (T(1) - w));
}

enum Kind { FLOAT, NUMERIC };
enum Saves { NONE = 0, X = 1, Y = 2, XY = 3, AB, ABY, CROSS, QUOTIENT };

// Calls f(T{}) with the storage type when it is a float that computes in vectors; returns false for the others.
template <class F> SF_INLINE bool as_vector(DType t, const F& f) {
  switch (t) {
    case kFloat32: f(float{}); return true;
    case kBFloat16: f(BFloat16{}); return true;
    case kFloat16: f(Half{}); return true;
    default: return false;
  }
}
template <class F> SF_INLINE void as_integer(DType t, const F& f) {
  switch (t) {
    case kUInt8:
    case kBool: return f(uint8_t{});
    case kInt8: return f(int8_t{});
    case kInt16: return f(int16_t{});
    case kInt32: return f(int32_t{});
    default: return f(int64_t{});
  }
}

}  // namespace SF_ISA
}  // namespace sf
