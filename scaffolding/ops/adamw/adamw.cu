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

  __device__ void operator()(const AdamWTensor& t, int64_t i) const {
    if (!numbers) return update(t, i, lr, step_size, root_correction2, grad_scale);
    if (numbers[4] == 0) update(t, i, A(numbers[0]), A(numbers[1]), A(numbers[2]), grad_scale * A(numbers[3]));
  }
  __device__ void update(const AdamWTensor& t, int64_t i, A lr, A step_size, A root_correction2, A grad_scale) const {
    Numbers param = numbers_at(t.param, t.param_dtype), grad = numbers_at(t.grad, t.grad_dtype);
    A *m = static_cast<A*>(t.exp_avg), *v = static_cast<A*>(t.exp_avg_sq), *largest = static_cast<A*>(t.max_exp_avg_sq);
    A p = t.master ? A(t.master[i]) : entry<A>(param, i), g = grad_scale * entry<A>(grad, i);
    if (decoupled) p *= A(1) - lr * weight_decay;
    else g += weight_decay * p;
    A first_moment = m[i] + one_minus_beta1 * (g - m[i]), second = beta2 * v[i] + one_minus_beta2 * g * g, under = second;
    m[i] = first_moment;
    v[i] = second;
    if (largest) {
      under = largest[i] > second ? largest[i] : second;
      largest[i] = under;
    }
    p -= step_size * first_moment / (root(under) / root_correction2 + eps);
    if (t.master) t.master[i] = float(p);
    param.set(i, p);
  }
};

void adamw(const AdamWStep& s) {
  if (!s.numbers) refuse_while_capturing("adamw", "an optimizer whose step count and learning rate are numbers of the host (capturable=False)");
  Device device = device_of_step("adamw", s.tensors, s.count, [](const AdamWTensor& t) { return t.param; });
  auto wide = [](const AdamWTensor& t) { return t.param_dtype == kFloat64; };
  each_tensor_element(
      "adamw", device, s.tensors, s.count, [&](const AdamWTensor& t) { return !wide(t); }, Update<float>(s));
  each_tensor_element("adamw", device, s.tensors, s.count, wide, Update<double>(s));
}
SF_KERNEL(adamw_step, DeviceType::CUDA, "native", 0, adamw, nullptr)

}  // namespace
}  // namespace sf::cuda
