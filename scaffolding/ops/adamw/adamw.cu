// AdamW and Adam on CUDA: many tensors a launch, each element read and written once.
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/adamw/kernel.h"

namespace sf::cuda {
namespace {

constexpr int kTensors = 40;         // of a launch: 3 KiB of arguments, of the 4 KiB there are
constexpr int64_t kPerBlock = 4096;  // elements

struct Item {
  void* param;
  const void* grad;
  void *exp_avg, *exp_avg_sq, *max_exp_avg_sq;
  float* master;
  int64_t numel;
  uint32_t first_block;
  DType param_dtype, grad_dtype;
};
struct Batch {
  Item items[kTensors];
  int count = 0;
};
template <class A> struct Rates {
  A lr, one_minus_beta1, beta2, one_minus_beta2, eps, weight_decay, step_size, root_correction2, grad_scale;
  bool decoupled;
};

__device__ inline float root(float x) { return ::sqrtf(x); }
__device__ inline double root(double x) { return ::sqrt(x); }

template <class A> __global__ void __launch_bounds__(kThreads) adamw_elements(Batch batch, Rates<A> r) {
  int k = 0;
  while (k + 1 < batch.count && blockIdx.x >= batch.items[k + 1].first_block) ++k;
  const Item& t = batch.items[k];
  Numbers param, grad;
  param.data = t.param, param.dtype = t.param_dtype;
  grad.data = const_cast<void*>(t.grad), grad.dtype = t.grad_dtype;
  A *m = static_cast<A*>(t.exp_avg), *v = static_cast<A*>(t.exp_avg_sq), *largest = static_cast<A*>(t.max_exp_avg_sq);
  int64_t first = int64_t(blockIdx.x - t.first_block) * kPerBlock, end = first + kPerBlock < t.numel ? first + kPerBlock : t.numel;
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    A p = t.master ? A(t.master[i]) : entry<A>(param, i), g = r.grad_scale * entry<A>(grad, i);
    if (r.decoupled) p *= A(1) - r.lr * r.weight_decay;
    else g += r.weight_decay * p;
    A first_moment = m[i] + r.one_minus_beta1 * (g - m[i]), second = r.beta2 * v[i] + r.one_minus_beta2 * g * g, under = second;
    m[i] = first_moment;
    v[i] = second;
    if (largest) {
      under = largest[i] > second ? largest[i] : second;
      largest[i] = under;
    }
    p -= r.step_size * first_moment / (root(under) / r.root_correction2 + r.eps);
    if (t.master) t.master[i] = float(p);
    param.set(i, p);
  }
}

template <class A> void run(const AdamWStep& s, Device device, bool wide) {
  Rates<A> r{A(s.lr),
             A(1 - s.beta1),
             A(s.beta2),
             A(1 - s.beta2),
             A(s.eps),
             A(s.weight_decay),
             A(s.lr / s.bias_correction1),
             A(::sqrt(s.bias_correction2)),
             A(s.maximize ? -s.grad_scale : s.grad_scale),
             s.decoupled};
  Batch batch;
  uint32_t blocks = 0;
  auto flush = [&] {
    if (blocks > 0) launch("adamw", device, blocks, adamw_elements<A>, batch, r);
    batch.count = 0;
    blocks = 0;
  };
  for (int64_t i = 0; i < s.count; ++i) {
    const AdamWTensor& t = s.tensors[i];
    if (t.numel == 0 || (t.param_dtype == kFloat64) != wide) continue;
    batch.items[batch.count++] = {t.param, t.grad, t.exp_avg, t.exp_avg_sq, t.max_exp_avg_sq, t.master, t.numel, blocks, t.param_dtype, t.grad_dtype};
    blocks += uint32_t((t.numel + kPerBlock - 1) / kPerBlock);
    if (batch.count == kTensors) flush();
  }
  flush();
}

// The step does not name its device: it is the one of the memory.
Device device_of(const AdamWStep& s) {
  for (int64_t i = 0; i < s.count; ++i) {
    if (s.tensors[i].numel == 0) continue;
    cudaPointerAttributes a;
    check(cudaPointerGetAttributes(&a, s.tensors[i].param), "adamw");
    return Device(Device::CUDA, a.device);
  }
  return Device(Device::CUDA, 0);
}

void adamw(const AdamWStep& s) {
  Device device = device_of(s);
  run<float>(s, device, false);
  run<double>(s, device, true);
}
SF_KERNEL(adamw_step, DeviceType::CUDA, "native", 0, adamw, nullptr)

}  // namespace
}  // namespace sf::cuda
