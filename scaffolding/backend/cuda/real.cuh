// real_t<T>: the type that elements of a floating type are computed in,
// and numbers whose floating dtype a kernel learns at run time.
#pragma once
#include "scaffolding/backend/cuda/vec.cuh"
#include "scaffolding/core/tensor_view.h"

namespace sf::cuda {

template <class T> struct Real { using type = float; };
template <> struct Real<double> { using type = double; };
template <class T> using real_t = typename Real<T>::type;

template <class T> __device__ inline T to_storage(float x) { return narrow<T>(x); }
template <class T> __device__ inline T to_storage(double x) {
  if constexpr (sizeof(T) == 8) return x;
  else return narrow<T>(float(x));
}

// Calls f(T{}) with the storage type of a floating dtype; false for the others.
template <class F> bool as_float(DType t, const F& f) {
  switch (t) {
    case kFloat32: f(float{}); return true;
    case kBFloat16: f(BFloat16{}); return true;
    case kFloat16: f(Half{}); return true;
    case kFloat64: f(double{}); return true;
    default: return false;
  }
}

// Weights, biases and their gradients, which may have another dtype than the activations. Dense;
// null where there is none.
struct Numbers {
  void* data = nullptr;
  DType dtype = kFloat32;

  Numbers() = default;
  Numbers(const TensorView& t) : data(t.defined() ? t.data : nullptr), dtype(t.dtype) {}
  __device__ explicit operator bool() const { return data != nullptr; }
  template <class A> __device__ void set(int64_t i, A x) const {
    switch (dtype) {
      case kFloat32: static_cast<float*>(data)[i] = float(x); return;
      case kBFloat16: static_cast<BFloat16*>(data)[i] = to_storage<BFloat16>(x); return;
      case kFloat16: static_cast<Half*>(data)[i] = to_storage<Half>(x); return;
      default: static_cast<double*>(data)[i] = double(x); return;
    }
  }
};
template <class A> __device__ A entry(const Numbers& n, int64_t i) {
  switch (n.dtype) {
    case kFloat32: return A(static_cast<const float*>(n.data)[i]);
    case kBFloat16: return A(widen(static_cast<const BFloat16*>(n.data)[i]));
    case kFloat16: return A(widen(static_cast<const Half*>(n.data)[i]));
    default: return A(static_cast<const double*>(n.data)[i]);
  }
}

}  // namespace sf::cuda
