// What gates a gated linear unit on CUDA.
#pragma once
#include "scaffolding/ops/fused/glu/kernel.h"
#include "scaffolding/ops/pointwise/scalar_math.cuh"

namespace sf::cuda {

// act(x) and its slope. Results that are rounded to 16 bits are computed by the GPU's fast instructions.
template <class T> struct Gate {
  using A = real_t<T>;
  static constexpr bool kFast = sizeof(T) == 2;

  __device__ static A sigmoid_of(A x) {
    if constexpr (kFast) return divide_fast(1.0f, 1.0f + exp_fast(-x));
    else return sigmoid(x);
  }
  // x Phi(x) by the tanh form: half of 1 + tanh(u) is sigmoid(2u).
  __device__ static A twice_u(A x) { return A(1.59576912160573071176) * (x + A(0.044715) * x * x * x); }

  __device__ static A gelu(A x) {
    if constexpr (kFast) return x * normal_cdf_fast(x);
    else return gelu_of(x);
  }
  __device__ static A gelu_slope(A x) {
    if constexpr (kFast) return normal_cdf_fast(x) + x * 0.398942280f * exp_fast(-0.5f * x * x);
    else return gelu_slope_of(x);
  }
  __device__ static A gelu_tanh(A x) { return x * sigmoid_of(twice_u(x)); }
  __device__ static A gelu_tanh_slope(A x) {
    A s = sigmoid_of(twice_u(x));
    return s + x * s * (A(1) - s) * A(1.59576912160573071176) * (A(1) + A(0.134145) * x * x);
  }
  __device__ static A silu(A x) { return x * sigmoid_of(x); }
  __device__ static A silu_slope(A x) {
    A s = sigmoid_of(x);
    return s * (A(1) + x * (A(1) - s));
  }
  __device__ static A sigmoid_slope(A x) { return sigmoid_of(x) * (A(1) - sigmoid_of(x)); }

  // f(activation, slope), chosen once for all that a thread does.
  template <class F> __device__ static void choose(GluActivation act, const F& f) {
    switch (act) {
      case GluActivation::Gelu: return f([](A x) { return gelu(x); }, [](A x) { return gelu_slope(x); });
      case GluActivation::GeluTanh: return f([](A x) { return gelu_tanh(x); }, [](A x) { return gelu_tanh_slope(x); });
      case GluActivation::Silu: return f([](A x) { return silu(x); }, [](A x) { return silu_slope(x); });
      case GluActivation::Sigmoid: return f([](A x) { return sigmoid_of(x); }, [](A x) { return sigmoid_slope(x); });
      default: return f([](A x) { return x > A(0) ? x : A(0); }, [](A x) { return A(x > A(0)); });
    }
  }
};

}  // namespace sf::cuda
