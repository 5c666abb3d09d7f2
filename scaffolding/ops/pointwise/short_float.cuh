// ShortFloat: what 16-bit floats are computed in. It is float32, but for logistic functions and gelu, which take the
// GPU's approximate exponential and reciprocal: exact division alone costs more than reading and writing such an
// element. Errors stay far below those of storing in 16 bits. Included by scalar_math.cuh,
// which has the functions of float.
#pragma once
#include "scaffolding/backend/cuda/math.cuh"

namespace sf::cuda {

struct ShortFloat {
  float v;
  ShortFloat() = default;
  template <class N> __host__ __device__ __forceinline__ explicit ShortFloat(N n) : v(float(n)) {}
  __host__ __device__ __forceinline__ explicit operator float() const { return v; }
};

#define SF_SHORT_OP(op) \
  __device__ __forceinline__ ShortFloat operator op(ShortFloat a, ShortFloat b) { return ShortFloat(a.v op b.v); }
SF_SHORT_OP(+)
SF_SHORT_OP(-)
SF_SHORT_OP(*)
SF_SHORT_OP(/)
#undef SF_SHORT_OP
#define SF_SHORT_COMPARE(op) \
  __device__ __forceinline__ bool operator op(ShortFloat a, ShortFloat b) { return a.v op b.v; }
SF_SHORT_COMPARE(<)
SF_SHORT_COMPARE(<=)
SF_SHORT_COMPARE(>)
SF_SHORT_COMPARE(>=)
SF_SHORT_COMPARE(==)
SF_SHORT_COMPARE(!=)
#undef SF_SHORT_COMPARE
__device__ __forceinline__ ShortFloat operator-(ShortFloat a) { return ShortFloat(-a.v); }

// Functions of float, for which no better one is below: templates, which lose against those.
template <class S> inline constexpr bool is_short = std::is_same_v<S, ShortFloat>;
#define SF_SCALAR_1(name, fn) \
  template <class S>          \
  requires is_short<S> __device__ __forceinline__ S name(S x) { return S(name(x.v)); }
#define SF_SCALAR_2(name, fn) \
  template <class S>          \
  requires is_short<S> __device__ __forceinline__ S name(S a, S b) { return S(name(a.v, b.v)); }
#define SF_SCALAR_REAL(...)
#define SF_SCALAR_TEXT(...)
#include "scaffolding/ops/pointwise/scalar_functions.def"
#define SF_SHORT_1(name) \
  __device__ __forceinline__ ShortFloat name(ShortFloat x) { return ShortFloat(name(x.v)); }
#define SF_SHORT_2(name) \
  __device__ __forceinline__ ShortFloat name(ShortFloat a, ShortFloat b) { return ShortFloat(name(a.v, b.v)); }
SF_SHORT_1(sign)
SF_SHORT_1(softplus_of)
SF_SHORT_2(maximum)
SF_SHORT_2(minimum)
SF_SHORT_2(remainder)
SF_SHORT_2(floor_divide)
#undef SF_SHORT_1
#undef SF_SHORT_2
__device__ __forceinline__ ShortFloat select(bool m, ShortFloat a, ShortFloat b) { return m ? a : b; }
__device__ __forceinline__ ShortFloat rsqrt(ShortFloat x) { return ShortFloat(::rsqrtf(x.v)); }

__device__ __forceinline__ ShortFloat sigmoid(ShortFloat x) {
  return ShortFloat(reciprocal_fast(1.f + power_of_two(x.v * -1.4426950408889634f)));
}
// Near zero, where the difference of two nearly equal numbers would be left, the first terms of its series.
__device__ __forceinline__ ShortFloat tanh(ShortFloat x) {
  float square = x.v * x.v, near = x.v + x.v * square * (-0.33333333f + square * 0.13333333f);
  float far = 1.f - 2.f * reciprocal_fast(1.f + power_of_two(x.v * 2.8853900817779268f));
  return ShortFloat(fabsf(x.v) < 0.25f ? near : far);
}

// With z = min(|x|, 16): Phi(-z), and exp(-x^2 / 2). Abramowitz and Stegun, "Handbook of Mathematical Functions",
// 7.1.26: |error of Phi| <= 7.5e-8. Beyond 16 both are zero in 16 bits, and infinities make no NaN.
struct NormalTail {
  float z, tail, bell;
  __device__ __forceinline__ explicit NormalTail(float x) {
    bell = power_of_two(x * (x * -0.72134752044448170f));
    z = fminf(fabsf(x), 16.f);
    float t = reciprocal_fast(1.f + 0.23164190f * z);  // 0.3275911 / sqrt(2)
    tail = (0.127414796f + t * (-0.142248368f + t * (0.7107068705f + t * (-0.7265760135f + t * 0.5307027145f)))) *
           (t * bell);
  }
};
__device__ __forceinline__ ShortFloat gelu_of(ShortFloat x) {
  NormalTail n(x.v);
  return ShortFloat(fmaxf(x.v, 0.f) - n.z * n.tail);
}
__device__ __forceinline__ ShortFloat gelu_slope_of(ShortFloat x) {
  NormalTail n(x.v);
  return ShortFloat((x.v > 0 ? 1.f - n.tail : n.tail) + x.v * 0.39894228040143268f * n.bell);
}

// gelu's tanh form is x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3): one exponential,
// and nothing cancels where x is negative.
__device__ __forceinline__ float gelu_tanh_gate(float x) {
  return sigmoid(ShortFloat(x * (1.5957691216057308f + 0.071354816272600249f * (x * x)))).v;
}
__device__ __forceinline__ ShortFloat gelu_tanh_of(ShortFloat x) { return ShortFloat(x.v * gelu_tanh_gate(x.v)); }
__device__ __forceinline__ ShortFloat gelu_tanh_slope_of(ShortFloat x) {
  float s = gelu_tanh_gate(x.v), square = fminf(x.v * x.v, 256.f);  // beyond 16 the gate is open or shut
  return ShortFloat(s + x.v * s * (1.f - s) * (1.5957691216057308f + 0.21406444881780075f * square));
}

// The lines of unary.def: value and gradient.
template <class F, class C> __device__ __forceinline__ C value_of(C x, C p0, C p1) {
  if constexpr (std::is_same_v<F, gelu_tanh_fn> && is_short<C>) return gelu_tanh_of(x);
  else return F::template y<C>(x, p0, p1);
}
template <class F, class C> __device__ __forceinline__ C gradient_of(C dy, C x, C y, C p0, C p1) {
  if constexpr (std::is_same_v<F, gelu_tanh_fn> && is_short<C>) return dy * gelu_tanh_slope_of(x);
  else return F::template dx<C>(dy, x, y, p0, p1);
}

}  // namespace sf::cuda
