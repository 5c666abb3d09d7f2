// The .def expressions as functors for CUDA: T is float, ShortFloat (for 16-bit floats), double or Int<I>.
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

#define SF_SCALAR_1(name, fn)                         \
  SF_INLINE double name(double x) { return ::fn(x); } \
  SF_INLINE float name(float x) { return ::fn##f(x); }
#define SF_SCALAR_2(name, fn)                                      \
  SF_INLINE double name(double a, double b) { return ::fn(a, b); } \
  SF_INLINE float name(float a, float b) { return ::fn##f(a, b); }
#define SF_SCALAR_REAL(...)
#define SF_SCALAR_TEXT(...)
#include "scaffolding/ops/pointwise/scalar_functions.def"

#define SF_SCALAR_1(...)
#define SF_SCALAR_2(...)
#define SF_SCALAR_REAL(...) __VA_ARGS__
#define SF_SCALAR_TEXT(...)
#define T float
#include "scaffolding/ops/pointwise/scalar_functions.def"
#undef T
#define SF_SCALAR_1(...)
#define SF_SCALAR_2(...)
#define SF_SCALAR_REAL(...) __VA_ARGS__
#define SF_SCALAR_TEXT(...)
#define T double
#include "scaffolding/ops/pointwise/scalar_functions.def"
#undef T
#define SF_SCALAR_1(...)
#define SF_SCALAR_2(...)
#define SF_SCALAR_REAL(...)
#define SF_SCALAR_TEXT(...) __VA_ARGS__
#include "scaffolding/ops/pointwise/scalar_functions.def"

#include "scaffolding/ops/pointwise/wrapping_int.h"

#include "scaffolding/ops/pointwise/expressions.h"
#pragma pop_macro("SF_INLINE")

}  // namespace sf::cuda

#include "scaffolding/ops/pointwise/short_float.cuh"

namespace sf::cuda {

enum Kind { FLOAT, NUMERIC };
enum Saves { NONE = 0, X = 1, Y = 2 };

// The type an element is computed in, and the ways there and back.
template <class T> struct Compute { using type = Int<T>; };
template <> struct Compute<Half> { using type = ShortFloat; };
template <> struct Compute<BFloat16> { using type = ShortFloat; };
template <> struct Compute<float> { using type = float; };
template <> struct Compute<double> { using type = double; };
template <class T> using compute_t = typename Compute<T>::type;

template <class T> __device__ inline compute_t<T> to_compute(T x) { return compute_t<T>(widen(x)); }
template <class T> __device__ inline T from_compute(Int<T> x) { return x.v; }
template <class T> __device__ inline T from_compute(float x) { return narrow<T>(x); }
template <class T> __device__ inline T from_compute(ShortFloat x) { return narrow<T>(x.v); }
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
