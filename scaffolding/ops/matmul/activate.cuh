// The activations that follow a product on CUDA.
#pragma once
#include "scaffolding/backend/cuda/math.cuh"
#include "scaffolding/ops/matmul/kernel.h"

namespace sf::cuda {

template <class A> __device__ A activate(Activation act, A x) {
  switch (act) {
    case Activation::Relu: return x < A(0) ? A(0) : x;  // a NaN comes through
    case Activation::GeluErf: return A(0.5) * x * (A(1) + erf_of(x * A(0.70710678118654752)));
    case Activation::GeluTanh:
      return A(0.5) * x * (A(1) + tanh_of(A(0.79788456080286536) * (x + A(0.044715) * x * x * x)));
    case Activation::Silu: return x / (A(1) + exp_of(-x));
    case Activation::QuickGelu: return x / (A(1) + exp_of(A(-1.702) * x));
    default: return x;
  }
}

}  // namespace sf::cuda
