// The .def expressions as functors for CUDA: T is float (also for 16-bit floats), double or Int<I>.
// The functions have the names and meanings of backend/cpu/simd_math.h and row_math.h.
#pragma once
#include "scaffolding/backend/cuda/elementwise.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/pointwise/kernel.h"

namespace sf::cuda {

// The shared headers below mark their functions SF_INLINE; here these are device functions too.
#pragma push_macro("SF_INLINE")
#undef SF_INLINE
#define SF_INLINE __host__ __device__ __forceinline__

#define SF_CUDA_1(name, fn)                           \
  SF_INLINE double name(double x) { return ::fn(x); } \
  SF_INLINE float name(float x) { return ::fn##f(x); }
SF_CUDA_1(exp, exp)
SF_CUDA_1(exp2, exp2)
SF_CUDA_1(expm1, expm1)
SF_CUDA_1(log, log)
SF_CUDA_1(log2, log2)
SF_CUDA_1(log1p, log1p)
SF_CUDA_1(sqrt, sqrt)
SF_CUDA_1(sin, sin)
SF_CUDA_1(cos, cos)
SF_CUDA_1(tan, tan)
SF_CUDA_1(tanh, tanh)
SF_CUDA_1(erf, erf)
SF_CUDA_1(floor, floor)
SF_CUDA_1(ceil, ceil)
SF_CUDA_1(trunc, trunc)
SF_CUDA_1(round, rint)  // halves to even
SF_CUDA_1(abs, fabs)
#undef SF_CUDA_1
#define SF_CUDA_2(name, fn)                                        \
  SF_INLINE double name(double a, double b) { return ::fn(a, b); } \
  SF_INLINE float name(float a, float b) { return ::fn##f(a, b); }
SF_CUDA_2(pow, pow)
SF_CUDA_2(atan2, atan2)
SF_CUDA_2(fmod, fmod)
SF_CUDA_2(copysign, copysign)
#undef SF_CUDA_2

// A literal turns into T by T(...), so that these never mix types.
#define SF_CUDA_REAL(T)                                                                    \
  SF_INLINE T rsqrt(T x) { return T(1) / sqrt(x); }                                        \
  SF_INLINE T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }                             \
  SF_INLINE T sign(T x) { return T(x > T(0)) - T(x < T(0)); }                              \
  SF_INLINE T maximum(T a, T b) { return a != a || a > b ? a : b; } /* NaN if either is */ \
  SF_INLINE T minimum(T a, T b) { return a != a || a < b ? a : b; }                        \
  SF_INLINE T select(bool m, T a, T b) { return m ? a : b; }                               \
  SF_INLINE T softplus_of(T x) { return (x > T(0) ? x : T(0)) + log1p(exp(-abs(x))); }     \
  SF_INLINE T remainder(T a, T b) {                                                        \
    T m = fmod(a, b);                                                                      \
    return m != T(0) && (b < T(0)) != (m < T(0)) ? m + b : m;                              \
  }
SF_CUDA_REAL(float)
SF_CUDA_REAL(double)
#undef SF_CUDA_REAL

// As torch: the division is made exact first, so that floor_divide(a, b) * b + remainder(a, b) == a.
SF_INLINE double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  double m = fmod(a, b), d = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) d -= 1;
  if (d == 0) return copysign(0.0, a / b);
  double f = floor(d);
  return d - f > 0.5 ? f + 1 : f;
}
SF_INLINE float floor_divide(float a, float b) { return float(floor_divide(double(a), double(b))); }

template <class T> SF_INLINE T zero(T) { return T(0); }
template <class T> SF_INLINE T times(T x, T p) { return x * p; }
template <class T> SF_INLINE T square_of(T x) { return x * x; }
// x Phi(x) and its derivative Phi(x) + x phi(x).
template <class T> SF_INLINE T gelu_of(T x) { return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440))); }
template <class T> SF_INLINE T gelu_slope_of(T x) {
  return T(0.5) * (T(1) + erf(x * T(0.70710678118654752440))) + x * T(0.39894228040143267794) * exp(T(-0.5) * x * x);
}

#include "scaffolding/ops/pointwise/wrapping_int.h"

#include "scaffolding/ops/pointwise/expressions.h"
#pragma pop_macro("SF_INLINE")

enum Kind { FLOAT, NUMERIC };
enum Saves { NONE = 0, X = 1, Y = 2 };

// The type an element is computed in, and the ways there and back.
template <class T> struct Compute { using type = Int<T>; };
template <> struct Compute<Half> { using type = float; };
template <> struct Compute<BFloat16> { using type = float; };
template <> struct Compute<float> { using type = float; };
template <> struct Compute<double> { using type = double; };
template <class T> using compute_t = typename Compute<T>::type;

template <class T> __device__ inline compute_t<T> to_compute(T x) { return widen(x); }
template <class T> __device__ inline T from_compute(Int<T> x) { return x.v; }
template <class T> __device__ inline T from_compute(float x) { return narrow<T>(x); }
template <class T> __device__ inline T from_compute(double x) { return T(x); }

template <class F> void as_integer(DType t, const F& f) {
  switch (t) {
    case kUInt8:
    case kBool: return f(uint8_t{});
    case kInt8: return f(int8_t{});
    case kInt16: return f(int16_t{});
    case kInt32: return f(int32_t{});
    default: return f(int64_t{});
  }
}
inline bool computes_in_floats(const PointwiseViews& v) { return is_floating(v.dtype); }

}  // namespace sf::cuda
