// Gated linear units on CUDA: both gradients in one pass, because they may overwrite what they are made of.
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/ops/fused/glu/kernel.h"
#include "scaffolding/ops/pointwise/scalar_math.cuh"

namespace sf::cuda {
namespace {

template <class T> struct Matrix {
  T* data;
  int64_t stride;
  Matrix(const TensorView& t) : data(t.as<T>()), stride(t.sizes[0] > 1 ? t.strides[0] : 0) {}
};
template <class T> struct Glu {
  Matrix<T> hidden, gate, dy, out, dgate;  // out: y or dhidden
  int64_t rows, cols;
};

template <class A> __device__ A activation(GluActivation act, A x) {
  switch (act) {
    case GluActivation::Gelu: return gelu_of(x);
    case GluActivation::GeluTanh: return A(0.5) * x * (A(1) + tanh(A(0.79788456080286535588) * (x + A(0.044715) * x * x * x)));
    case GluActivation::Silu: return x * sigmoid(x);
    case GluActivation::Sigmoid: return sigmoid(x);
    default: return x > A(0) ? x : A(0);
  }
}
template <class A> __device__ A slope(GluActivation act, A x) {
  switch (act) {
    case GluActivation::Gelu: return gelu_slope_of(x);
    case GluActivation::GeluTanh: {
      A t = tanh(A(0.79788456080286535588) * (x + A(0.044715) * x * x * x));
      return A(0.5) * (A(1) + t) + A(0.5) * x * (A(1) - t * t) * A(0.79788456080286535588) * (A(1) + A(0.134145) * x * x);
    }
    case GluActivation::Silu: return sigmoid(x) * (A(1) + x * (A(1) - sigmoid(x)));
    case GluActivation::Sigmoid: return sigmoid(x) * (A(1) - sigmoid(x));
    default: return A(x > A(0));
  }
}

template <class T, bool kBackward> __global__ void __launch_bounds__(kThreads) glu_elements(Glu<T> g, GluActivation act) {
  using A = real_t<T>;
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= g.rows * g.cols) return;
  int64_t r = i / g.cols, c = i - r * g.cols;
  A hidden = widen(g.hidden.data[r * g.hidden.stride + c]), gate = widen(g.gate.data[r * g.gate.stride + c]);
  if constexpr (kBackward) {
    A dy = widen(g.dy.data[r * g.dy.stride + c]);
    g.out.data[r * g.out.stride + c] = to_storage<T>(dy * activation(act, gate));
    g.dgate.data[r * g.dgate.stride + c] = to_storage<T>(dy * hidden * slope(act, gate));
  } else {
    g.out.data[r * g.out.stride + c] = to_storage<T>(hidden * activation(act, gate));
  }
}

void forward(const GluForward& f) {
  if (f.y.numel() == 0) return;
  as_float(f.y.dtype, [&](auto t) {
    using T = decltype(t);
    Glu<T> g{f.hidden, f.gate, f.y, f.y, f.y, f.y.sizes[0], f.y.sizes[1]};
    launch("glu", f.y.device, blocks_for(f.y.numel(), 1), glu_elements<T, false>, g, f.act);
  });
}
void backward(const GluBackward& b) {
  if (b.dy.numel() == 0) return;
  as_float(b.dy.dtype, [&](auto t) {
    using T = decltype(t);
    Glu<T> g{b.hidden, b.gate, b.dy, b.dhidden, b.dgate, b.dy.sizes[0], b.dy.sizes[1]};
    launch("glu_backward", b.dy.device, blocks_for(b.dy.numel(), 1), glu_elements<T, true>, g, b.act);
  });
}
SF_KERNEL(glu_forward, DeviceType::CUDA, "native", 0, forward, nullptr)
SF_KERNEL(glu_backward, DeviceType::CUDA, "native", 0, backward, nullptr)

}  // namespace
}  // namespace sf::cuda
