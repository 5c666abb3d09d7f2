// SGD, averages of weights and unscaling of gradients on CUDA, many tensors a launch.
#include "scaffolding/backend/cuda/capture.h"
#include "scaffolding/backend/cuda/multi_tensor.cuh"

#include "scaffolding/optim/kernel.h"

namespace sf::cuda {
namespace {

using optim::LerpStep;
using optim::LerpTensor;
using optim::SgdStep;
using optim::SgdTensor;
using optim::UnscaleStep;
using optim::UnscaleTensor;

template <class A> struct Sgd {
  A lr, momentum, damped, weight_decay, sign;
  bool nesterov;
  const double* numbers;
  explicit Sgd(const SgdStep& s)
      : lr(A(s.lr)),
        momentum(A(s.momentum)),
        damped(A(1 - s.dampening)),
        weight_decay(A(s.weight_decay)),
        sign(A(s.maximize ? -1 : 1)),
        nesterov(s.nesterov),
        numbers(s.numbers) {}
  __device__ void operator()(const SgdTensor& t, int64_t i) const {
    if (!numbers) update(t, i, lr);
    else if (numbers[4] == 0) update(t, i, A(numbers[0]));
  }
  __device__ void update(const SgdTensor& t, int64_t i, A lr) const {
    Numbers param = numbers_at(t.param, t.param_dtype), grad = numbers_at(t.grad, t.grad_dtype);
    A p = t.master ? A(t.master[i]) : entry<A>(param, i), g = sign * entry<A>(grad, i) + weight_decay * p;
    if (A* buffer = static_cast<A*>(t.buffer)) {
      A b = t.first ? g : momentum * buffer[i] + damped * g;
      buffer[i] = b;
      g = nesterov ? g + momentum * b : b;
    }
    p -= lr * g;
    if (t.master) t.master[i] = float(p);
    param.set(i, p);
  }
};

void sgd(const SgdStep& s) {
  for (int64_t i = 0; i < s.count; ++i)
    if (s.tensors[i].first && s.tensors[i].buffer) refuse_while_capturing("sgd", "a first step, which starts the momentum anew in every replay,");
  Device device = device_of_step("sgd", s.tensors, s.count, [](const SgdTensor& t) { return t.param; });
  auto wide = [](const SgdTensor& t) { return t.param_dtype == kFloat64; };
  each_tensor_element(
      "sgd", device, s.tensors, s.count, [&](const SgdTensor& t) { return !wide(t); }, Sgd<float>(s));
  each_tensor_element("sgd", device, s.tensors, s.count, wide, Sgd<double>(s));
}

template <class A> struct Lerp {
  A weight;
  __device__ void operator()(const LerpTensor& t, int64_t i) const {
    Numbers average = numbers_at(t.average, t.average_dtype), value = numbers_at(t.value, t.value_dtype);
    A m = entry<A>(average, i);
    average.set(i, m + weight * (entry<A>(value, i) - m));
  }
};

void lerp(const LerpStep& s) {
  Device device = device_of_step("lerp", s.tensors, s.count, [](const LerpTensor& t) { return t.average; });
  auto wide = [](const LerpTensor& t) { return t.average_dtype == kFloat64; };
  each_tensor_element(
      "lerp", device, s.tensors, s.count, [&](const LerpTensor& t) { return !wide(t); }, Lerp<float>{float(s.weight)});
  each_tensor_element("lerp", device, s.tensors, s.count, wide, Lerp<double>{s.weight});
}

template <class A> struct Unscale {
  A factor;
  float* found_inf;
  __device__ void operator()(const UnscaleTensor& t, int64_t i) const {
    Numbers grad = numbers_at(t.grad, t.dtype);
    A g = entry<A>(grad, i);
    grad.set(i, g * factor);
    if (!(g * A(0) == A(0))) *found_inf = 1;  // whoever writes, writes the same
  }
};

void unscale(const UnscaleStep& s) {
  Device device = device_of_step("unscale", s.tensors, s.count, [](const UnscaleTensor& t) { return t.grad; });
  auto wide = [](const UnscaleTensor& t) { return t.dtype == kFloat64; };
  each_tensor_element(
      "unscale", device, s.tensors, s.count, [&](const UnscaleTensor& t) { return !wide(t); }, Unscale<float>{float(s.factor), s.found_inf});
  each_tensor_element("unscale", device, s.tensors, s.count, wide, Unscale<double>{s.factor, s.found_inf});
}

SF_KERNEL(optim::sgd_step, DeviceType::CUDA, "native", 0, sgd, nullptr)
SF_KERNEL(optim::lerp_step, DeviceType::CUDA, "native", 0, lerp, nullptr)
SF_KERNEL(optim::unscale_step, DeviceType::CUDA, "native", 0, unscale, nullptr)

}  // namespace
}  // namespace sf::cuda
