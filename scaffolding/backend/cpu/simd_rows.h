// What row kernels (softmax, norms, GLU, RoPE) share: one template over the element type serves float32, bfloat16 and
// float16 with vf arithmetic and float64 with plain doubles ("vectors" of one lane), tails included.
// Included only by *.cpu.cpp files and the headers beside them; everything inlines or is static.
#pragma once
#include "scaffolding/backend/cpu/cache.h"
#include "scaffolding/backend/cpu/simd_math.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/core/tensor_view.h"

namespace sf {
namespace SF_ISA {

// Vec<T>: what a T computes in. Acc<T>: its scalar. lanes<V>: elements per Vec.
template <class T> struct ComputeType {
  using vec = vf;
  using acc = float;
};
template <> struct ComputeType<double> {
  using vec = double;
  using acc = double;
};
template <class T> using Vec = typename ComputeType<T>::vec;
template <class T> using Acc = typename ComputeType<T>::acc;
template <class T> inline constexpr int kVec = sizeof(Vec<T>) / sizeof(Acc<T>);

SF_INLINE double load(const double* p) { return *p; }
SF_INLINE void store(double* p, double x) { *p = x; }
SF_INLINE double load_n(const double* p, int, double = 0) { return *p; }
SF_INLINE void store_n(double* p, double x, int) { *p = x; }
SF_INLINE double reduce_add(double x) { return x; }
SF_INLINE double reduce_max(double x) { return x; }

SF_INLINE double scalar(double x) { return x; }
SF_INLINE float scalar(float x) { return x; }
SF_INLINE float scalar(Half x) { return to_float(x); }
SF_INLINE float scalar(BFloat16 x) { return to_float(x); }
template <class T> SF_INLINE T narrowed(Acc<T> x) {
  if constexpr (sizeof(T) == sizeof(Acc<T>)) return x;
  else return from_float<T>(x);
}

// f(i, n) for every vector of [0, count): n lanes from element i on; n is a constant but for the last.
template <class T, class F> SF_INLINE void each_vector(int64_t count, F f) {
  constexpr int L = kVec<T>;
  int64_t i = 0;
  for (; i + 2 * L <= count; i += 2 * L) {
    f(i, L);
    f(i + L, L);
  }
  for (; i + L <= count; i += L) f(i, L);
  if (L > 1 && i < count) f(i, int(count - i));
}
// The same, with fetch(i) once for every 64 bytes of T, before they are computed.
template <class T, class P, class F> SF_INLINE void each_vector(int64_t count, P fetch, F f) {
  constexpr int L = kVec<T>, bytes = 2 * L * int(sizeof(T));
  int64_t i = 0;
  for (; i + 2 * L <= count; i += 2 * L) {
    for (int k = 0; k < bytes; k += 64) fetch(i + k / int(sizeof(T)));
    f(i, L);
    f(i + L, L);
  }
  for (; i + L <= count; i += L) {
    if constexpr (bytes >= 128) fetch(i);
    f(i, L);
  }
  if (L > 1 && i < count) f(i, int(count - i));
}
// Sum over [0, count) of the vectors f(i, n); lanes past n must be 0. Four accumulators hide the adder's latency.
template <class T, class F> SF_INLINE Acc<T> sum_vectors(int64_t count, F f) {
  constexpr int L = kVec<T>;
  Vec<T> a(0.f), b(0.f), c(0.f), d(0.f);
  int64_t i = 0;
  for (; i + 4 * L <= count; i += 4 * L) {
    a += f(i, L);
    b += f(i + L, L);
    c += f(i + 2 * L, L);
    d += f(i + 3 * L, L);
  }
  for (; i + L <= count; i += L) a += f(i, L);
  if (L > 1 && i < count) b += f(i, int(count - i));
  return reduce_add((a + b) + (c + d));
}
// Lanes past n become 0.
SF_INLINE double first_n(double x, int) { return x; }
SF_INLINE vf first_n(vf x, int n) {
  if (n == kLanes) return x;
  vi_raw lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return select(vm{vi_raw(lane < n)}, x, vf(0.f));
}

// Calls f(type_tag<T>{}) for the four floating types that compute.
template <class F> SF_INLINE void visit_floating(DType t, F f) {
  switch (t) {
    case kFloat32: return f(type_tag<float>{});
    case kBFloat16: return f(type_tag<BFloat16>{});
    case kFloat16: return f(type_tag<Half>{});
    default: return f(type_tag<double>{});
  }
}
SF_INLINE bool computes(DType t) { return t == kFloat32 || t == kBFloat16 || t == kFloat16 || t == kFloat64; }

// v[0 .. count) in A (float or double): v's own memory when it is that already, else converted into buffer[count].
// An absent tensor reads as `fill`. So kernels take weights of any floating type at no cost in code.
template <class A> static const A* converted(const TensorView& v, int64_t count, A fill, A* buffer) {
  if (!v) {
    for (int64_t i = 0; i < count; ++i) buffer[i] = fill;
    return buffer;
  }
  int64_t stride = v.ndim == 0 ? 1 : v.strides[v.ndim - 1];
  if (v.dtype == dtype_of<A>::value && (stride == 1 || count == 1)) return v.as<const A>();
  visit_floating(
      v.dtype, [&](auto tag) __attribute__((always_inline)) {
        using T = typename decltype(tag)::type;
        const T* p = v.as<const T>();
        for (int64_t i = 0; i < count; ++i) buffer[i] = A(scalar(p[i * stride]));
      });
  return buffer;
}
// The reverse, for gradients of weights: writes A's into a tensor of any floating type.
template <class A> static void write_converted(const TensorView& v, int64_t begin, int64_t end, const A* values) {
  visit_floating(
      v.dtype, [&](auto tag) __attribute__((always_inline)) {
        using T = typename decltype(tag)::type;
        T* p = v.as<T>();
        int64_t stride = v.ndim == 0 ? 1 : v.strides[v.ndim - 1];
        for (int64_t i = begin; i < end; ++i) p[i * stride] = narrowed<T>(Acc<T>(values[i - begin]));
      });
}

// Pieces of rows worth a thread's while: about 16 Ki elements (2 us of work at 8 elements per ns).
SF_INLINE int64_t row_grain(int64_t columns) { return columns >= 8192 ? 1 : 8192 / (columns > 0 ? columns : 1); }

// Whether an op from x to y, rows of whole vectors, writes past the caches.
SF_INLINE bool streams(const void* x, const void* y, int64_t bytes) {
  return x != y && bytes >= cpu::stream_bytes() && (uintptr_t(y) & 63) == 0;
}

}  // namespace SF_ISA
}  // namespace sf
