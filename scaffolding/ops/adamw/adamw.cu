// AdamW and Adam on CUDA: many tensors a launch, each element read and written once.
#include "scaffolding/backend/cuda/capture.h"
#include "scaffolding/backend/cuda/math.cuh"
#include "scaffolding/backend/cuda/multi_tensor.cuh"
#include "scaffolding/ops/adamw/kernel.h"

namespace sf::cuda {
namespace {

template <class A> struct Update {
  A lr, one_minus_beta1, beta2, one_minus_beta2, eps, weight_decay, step_size, root_correction2, grad_scale;
  bool decoupled;
  const double* numbers;

  explicit Update(const AdamWStep& s)
      : lr(A(s.lr)),
        one_minus_beta1(A(1 - s.beta1)),
        beta2(A(s.beta2)),
        one_minus_beta2(A(1 - s.beta2)),
        eps(A(s.eps)),
        weight_decay(A(s.weight_decay)),
        step_size(A(s.lr / s.bias_correction1)),
        root_correction2(A(::sqrt(s.bias_correction2))),
        grad_scale(A(s.maximize ? -s.grad_scale : s.grad_scale)),
        decoupled(s.decoupled),
        numbers(s.numbers) {}

  static bool aligned(const AdamWTensor& t) {
    return aligned_for_neighbours(t.param, size_of(t.param_dtype)) &&
           aligned_for_neighbours(t.grad, size_of(t.grad_dtype)) && aligned_for_neighbours(t.exp_avg, sizeof(A)) &&
           aligned_for_neighbours(t.exp_avg_sq, sizeof(A)) && aligned_for_neighbours(t.max_exp_avg_sq, sizeof(A)) &&
           aligned_for_neighbours(t.master, sizeof(float));
  }
  __device__ Update of_now() const {
    Update u = *this;
    if (!numbers) return u;
    u.lr = A(numbers[kStepLr]), u.step_size = A(numbers[kStepSize]),
    u.root_correction2 = A(numbers[kStepRootCorrection2]);
    u.one_minus_beta1 = A(1 - numbers[kStepBeta1]), u.beta2 = A(numbers[kStepBeta2]),
    u.one_minus_beta2 = A(1 - numbers[kStepBeta2]);
    u.eps = A(numbers[kStepEps]), u.weight_decay = A(numbers[kStepWeightDecay]);
    return u;
  }
  __device__ bool skip() const { return numbers && numbers[kStepSkip] != 0; }

  template <int V> __device__ void update(const AdamWTensor& t, int64_t i) const {
    constexpr DType moments = sizeof(A) == 8 ? kFloat64 : kFloat32;
    A p[V], g[V], m[V], v[V], under[V] = {};
    if (t.master) read_numbers<V>(t.master, kFloat32, i, p);
    else read_numbers<V>(t.param, t.param_dtype, i, p);
    read_numbers<V>(t.grad, t.grad_dtype, i, g);
    read_numbers<V>(t.exp_avg, moments, i, m);
    read_numbers<V>(t.exp_avg_sq, moments, i, v);
    if (t.max_exp_avg_sq) read_numbers<V>(t.max_exp_avg_sq, moments, i, under);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      g[k] *= grad_scale;
      if (decoupled) p[k] *= A(1) - lr * weight_decay;
      else g[k] += weight_decay * p[k];
      m[k] += one_minus_beta1 * (g[k] - m[k]);
      v[k] = beta2 * v[k] + one_minus_beta2 * g[k] * g[k];
      under[k] = t.max_exp_avg_sq && under[k] > v[k] ? under[k] : v[k];
      p[k] -= step_size * m[k] / (root(under[k]) / root_correction2 + eps);
    }
    write_numbers<V>(t.exp_avg, moments, i, m);
    write_numbers<V>(t.exp_avg_sq, moments, i, v);
    if (t.max_exp_avg_sq) write_numbers<V>(t.max_exp_avg_sq, moments, i, under);
    if (t.master) write_numbers<V>(t.master, kFloat32, i, p);
    write_numbers<V>(t.param, t.param_dtype, i, p);
  }
};

void adamw(const AdamWStep& s) {
  if (!s.numbers)
    refuse_while_capturing(
        "adamw", "an optimizer whose step count and learning rate are numbers of the host (capturable=False)");
  Device device = device_of_step("adamw", s.tensors, s.count, [](const AdamWTensor& t) { return t.param; });
  auto wide = [](const AdamWTensor& t) { return t.param_dtype == kFloat64; };
  each_tensor_element(
      "adamw", device, s.tensors, s.count, [&](const AdamWTensor& t) { return !wide(t); }, Update<float>(s));
  each_tensor_element("adamw", device, s.tensors, s.count, wide, Update<double>(s));
}
SF_KERNEL(adamw_step, DeviceType::CUDA, "native", 0, adamw, nullptr)

}  // namespace
}  // namespace sf::cuda
