// What the pointwise expressions need beyond simd_math.h, and integers with the same operators.
// Included only by *.cpu.cpp files of this folder.
#pragma once
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/backend/cpu/simd_math.h"
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

SF_INLINE double remainder(double a, double b) {
  double m = __builtin_fmod(a, b);
  return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}
// As torch: the division is made exact first, so that floor_divide(a, b) * b + remainder(a, b) == a.
SF_INLINE double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  double m = __builtin_fmod(a, b), d = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) d -= 1;
  if (d == 0) return __builtin_copysign(0.0, a / b);
  double f = __builtin_floor(d);
  return d - f > 0.5 ? f + 1 : f;
}
SF_INLINE vf remainder(vf a, vf b) {
  for (int i = 0; i < kLanes; ++i) {
    float m = __builtin_fmodf(a.v[i], b.v[i]);
    a.v[i] = m != 0 && (b.v[i] < 0) != (m < 0) ? m + b.v[i] : m;
  }
  return a;
}
SF_INLINE vf floor_divide(vf a, vf b) {
  for (int i = 0; i < kLanes; ++i) a.v[i] = float(floor_divide(double(a.v[i]), double(b.v[i])));
  return a;
}

// Integers that wrap around, as torch's do.
template <class I> struct Int {
  I v;
  Int() = default;
  SF_INLINE Int(I x) : v(x) {}
  // From parameters and literals. Reals saturate, so that -inf and inf are the ends of the range.
  template <class N> SF_INLINE explicit Int(N n) {
    if constexpr (N(0.5) == N(0)) {
      v = I(n);
    } else {
      constexpr I low = I(-1) < I(0) ? I(uint64_t(1) << (sizeof(I) * 8 - 1)) : I(0), high = I(~low);
      v = n != n ? I(0) : n <= double(low) ? low : n >= double(high) ? high : I(n);
    }
  }
};

#define SF_INT_OP(op) \
  template <class I> SF_INLINE Int<I> operator op(Int<I> a, Int<I> b) { return I(uint64_t(a.v) op uint64_t(b.v)); }
SF_INT_OP(+)
SF_INT_OP(-)
SF_INT_OP(*)
#undef SF_INT_OP
#define SF_INT_COMPARE(op) \
  template <class I> SF_INLINE bool operator op(Int<I> a, Int<I> b) { return a.v op b.v; }
SF_INT_COMPARE(<)
SF_INT_COMPARE(<=)
SF_INT_COMPARE(>)
SF_INT_COMPARE(>=)
SF_INT_COMPARE(==)
SF_INT_COMPARE(!=)
#undef SF_INT_COMPARE
template <class I> SF_INLINE Int<I> operator-(Int<I> a) { return I(0 - uint64_t(a.v)); }
template <class I> SF_INLINE Int<I> abs(Int<I> a) { return a.v < I(0) ? -a : a; }
template <class I> SF_INLINE Int<I> sign(Int<I> a) { return I((a.v > I(0)) - (a.v < I(0))); }
template <class I> SF_INLINE Int<I> floor(Int<I> a) { return a; }
template <class I> SF_INLINE Int<I> ceil(Int<I> a) { return a; }
template <class I> SF_INLINE Int<I> round(Int<I> a) { return a; }
template <class I> SF_INLINE Int<I> trunc(Int<I> a) { return a; }
template <class I> SF_INLINE Int<I> maximum(Int<I> a, Int<I> b) { return a.v > b.v ? a : b; }
template <class I> SF_INLINE Int<I> minimum(Int<I> a, Int<I> b) { return a.v < b.v ? a : b; }
template <class I> SF_INLINE Int<I> select(bool m, Int<I> a, Int<I> b) { return m ? a : b; }
// Division by zero gives 0 here: the op refuses it beforehand.
template <class I> SF_INLINE Int<I> floor_divide(Int<I> a, Int<I> b) {
  if (b.v == I(0)) return I(0);
  if (I(-1) < I(0) && b.v == I(-1)) return -a;  // the one quotient that overflows
  I q = I(a.v / b.v);
  return I(a.v % b.v != 0 && (a.v < I(0)) != (b.v < I(0)) ? q - 1 : q);
}
template <class I> SF_INLINE Int<I> operator/(Int<I> a, Int<I> b) {  // towards zero
  if (b.v == I(0)) return I(0);
  if (I(-1) < I(0) && b.v == I(-1)) return -a;
  return I(a.v / b.v);
}
template <class I> SF_INLINE Int<I> remainder(Int<I> a, Int<I> b) { return b.v == I(0) ? Int<I>(I(0)) : a - floor_divide(a, b) * b; }
template <class I> SF_INLINE Int<I> pow(Int<I> a, Int<I> b) {
  if (b.v < I(0)) return I(a.v == I(1) ? 1 : a.v == I(-1) ? (b.v & 1 ? -1 : 1) : 0);
  Int<I> y{I(1)};
  for (auto e = uint64_t(b.v); e; e >>= 1) {
    if (e & 1) y = y * a;
    a = a * a;
  }
  return y;
}

#include "scaffolding/ops/pointwise/expressions.h"

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
