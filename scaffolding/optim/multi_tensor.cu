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
  static bool aligned(const SgdTensor& t) {
    return aligned_for_neighbours(t.param, size_of(t.param_dtype)) &&
           aligned_for_neighbours(t.grad, size_of(t.grad_dtype)) && aligned_for_neighbours(t.buffer, sizeof(A)) &&
           aligned_for_neighbours(t.master, sizeof(float));
  }
  __device__ Sgd of_now() const {
    Sgd s = *this;
    if (!numbers) return s;
    s.lr = A(numbers[kStepLr]), s.momentum = A(numbers[kStepBeta1]), s.damped = A(1 - numbers[kStepBeta2]);
    s.weight_decay = A(numbers[kStepWeightDecay]);
    return s;
  }
  __device__ bool skip() const { return numbers && numbers[kStepSkip] != 0; }

  template <int V> __device__ void update(const SgdTensor& t, int64_t i) const {
    constexpr DType buffers = sizeof(A) == 8 ? kFloat64 : kFloat32;
    A p[V], g[V], b[V] = {};
    if (t.master) read_numbers<V>(t.master, kFloat32, i, p);
    else read_numbers<V>(t.param, t.param_dtype, i, p);
    read_numbers<V>(t.grad, t.grad_dtype, i, g);
    if (t.buffer && !t.first) read_numbers<V>(t.buffer, buffers, i, b);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      g[k] = sign * g[k] + weight_decay * p[k];
      if (t.buffer) {
        b[k] = t.first ? g[k] : momentum * b[k] + damped * g[k];
        g[k] = nesterov ? g[k] + momentum * b[k] : b[k];
      }
      p[k] -= lr * g[k];
    }
    if (t.buffer) write_numbers<V>(t.buffer, buffers, i, b);
    if (t.master) write_numbers<V>(t.master, kFloat32, i, p);
    write_numbers<V>(t.param, t.param_dtype, i, p);
  }
};

void sgd(const SgdStep& s) {
  if (!s.numbers)
    refuse_while_capturing("sgd",
                           "an optimizer whose learning rate and momentum are numbers of the host (capturable=False)");
  for (int64_t i = 0; i < s.count; ++i)
    if (s.tensors[i].first && s.tensors[i].buffer)
      refuse_while_capturing("sgd", "a first step, which starts the momentum anew in every replay,");
  Device device = device_of_step("sgd", s.tensors, s.count, [](const SgdTensor& t) { return t.param; });
  auto wide = [](const SgdTensor& t) { return t.param_dtype == kFloat64; };
  each_tensor_element(
      "sgd", device, s.tensors, s.count, [&](const SgdTensor& t) { return !wide(t); }, Sgd<float>(s));
  each_tensor_element("sgd", device, s.tensors, s.count, wide, Sgd<double>(s));
}

template <class A> struct Lerp {
  A weight;
  const double* there;
  explicit Lerp(const LerpStep& s) : weight(A(s.weight)), there(s.weight_there) {}
  static bool aligned(const LerpTensor& t) {
    return aligned_for_neighbours(t.average, size_of(t.average_dtype)) &&
           aligned_for_neighbours(t.value, size_of(t.value_dtype));
  }
  __device__ Lerp of_now() const {
    Lerp now = *this;
    if (there) now.weight = A(*there);
    return now;
  }
  __device__ bool skip() const { return false; }
  template <int V> __device__ void update(const LerpTensor& t, int64_t i) const {
    A m[V], x[V];
    read_numbers<V>(t.average, t.average_dtype, i, m);
    read_numbers<V>(t.value, t.value_dtype, i, x);
#pragma unroll
    for (int k = 0; k < V; ++k) m[k] += weight * (x[k] - m[k]);
    write_numbers<V>(t.average, t.average_dtype, i, m);
  }
};

void lerp(const LerpStep& s) {
  if (!s.weight_there) refuse_while_capturing("lerp_", "a weight that is a number of the host");
  Device device = device_of_step("lerp", s.tensors, s.count, [](const LerpTensor& t) { return t.average; });
  auto wide = [](const LerpTensor& t) { return t.average_dtype == kFloat64; };
  each_tensor_element(
      "lerp", device, s.tensors, s.count, [&](const LerpTensor& t) { return !wide(t); }, Lerp<float>(s));
  each_tensor_element("lerp", device, s.tensors, s.count, wide, Lerp<double>(s));
}

template <class A> struct Unscale {
  A factor;
  const float* scale;
  float* found_inf;
  explicit Unscale(const UnscaleStep& s) : factor(A(s.factor)), scale(s.scale), found_inf(s.found_inf) {}
  static bool aligned(const UnscaleTensor& t) { return aligned_for_neighbours(t.grad, size_of(t.dtype)); }
  __device__ Unscale of_now() const {
    Unscale now = *this;
    if (scale) now.factor = A(1 / double(*scale));
    return now;
  }
  __device__ bool skip() const { return false; }
  template <int V> __device__ void update(const UnscaleTensor& t, int64_t i) const {
    A g[V];
    read_numbers<V>(t.grad, t.dtype, i, g);
    bool finite = true;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      finite = finite && g[k] * A(0) == A(0);
      g[k] *= factor;
    }
    write_numbers<V>(t.grad, t.dtype, i, g);
    if (!finite) *found_inf = 1;  // whoever writes, writes the same
  }
};

void unscale(const UnscaleStep& s) {
  if (!s.scale) refuse_while_capturing("unscale_", "a loss scale that is a number of the host (capturable=False)");
  Device device = device_of_step("unscale", s.tensors, s.count, [](const UnscaleTensor& t) { return t.grad; });
  auto wide = [](const UnscaleTensor& t) { return t.dtype == kFloat64; };
  each_tensor_element(
      "unscale", device, s.tensors, s.count, [&](const UnscaleTensor& t) { return !wide(t); }, Unscale<float>(s));
  each_tensor_element("unscale", device, s.tensors, s.count, wide, Unscale<double>(s));
}

__global__ void make_numbers(optim::NumbersOfStep s, PreviousGrid previous) {
  previous.wait();
  if (blockIdx.x * blockDim.x + threadIdx.x > 0) return;
  const double lr = s.settings[0], beta1 = s.settings[1], beta2 = s.settings[2];
  const bool skip = s.found_inf && *s.found_inf != 0;
  double size = lr, root = 1;
  if (s.count && !skip) {
    const float count = *s.count + 1;
    *s.count = count;
    size = lr / (1 - ::pow(beta1, double(count)));
    root = ::sqrt(1 - ::pow(beta2, double(count)));
  }
  double* n = s.numbers;
  n[kStepLr] = lr, n[kStepSize] = size, n[kStepRootCorrection2] = root, n[kStepSkip] = skip ? 1 : 0;
  n[kStepBeta1] = beta1, n[kStepBeta2] = beta2, n[kStepEps] = s.settings[3], n[kStepWeightDecay] = s.settings[4];
}
void numbers(const optim::NumbersOfStep& s) { launch("optimizer", s.device, 1, make_numbers, s); }

__global__ void next_scale(optim::ScaleUpdate s, PreviousGrid previous) {
  previous.wait();
  if (blockIdx.x * blockDim.x + threadIdx.x > 0) return;
  float scale = *s.scale, tracker = *s.tracker + 1;
  if (*s.found_inf != 0) {
    scale *= s.backoff, tracker = 0;
  } else if (tracker >= s.interval) {
    const float grown = scale * s.growth;
    if (grown - grown == 0) scale = grown;  // not where it would be infinite
    tracker = 0;
  }
  *s.scale = scale, *s.tracker = tracker;
}
void update_scale(const optim::ScaleUpdate& s) { launch("GradScaler.update", s.device, 1, next_scale, s); }

SF_KERNEL(optim::numbers_of_step, DeviceType::CUDA, "native", 0, numbers, nullptr)
SF_KERNEL(optim::scale_update, DeviceType::CUDA, "native", 0, update_scale, nullptr)
SF_KERNEL(optim::sgd_step, DeviceType::CUDA, "native", 0, sgd, nullptr)
SF_KERNEL(optim::lerp_step, DeviceType::CUDA, "native", 0, lerp, nullptr)
SF_KERNEL(optim::unscale_step, DeviceType::CUDA, "native", 0, unscale, nullptr)

}  // namespace
}  // namespace sf::cuda
