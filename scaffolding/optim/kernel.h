// Passes over many tensors at once: the contract with backends. Pointers address numel elements each on the device, in one
// order; arrays of descriptors live on the host for the duration of the call. AdamW's is in ops/adamw.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf::optim {

// torch.optim.SGD's arithmetic:
//   g = grad (negated to maximise) + weight_decay * p
//   buffer = first ? g : momentum * buffer + (1 - dampening) * g;  g = nesterov ? g + momentum * buffer : buffer
//   p -= lr * g
struct SgdTensor {
  void* param = nullptr;
  const void* grad = nullptr;
  void* buffer = nullptr;   // float32, or float64 with a float64 param; null without momentum
  float* master = nullptr;  // float32 weights behind a 16-bit param
  int64_t numel = 0;
  DType param_dtype = kFloat32;  // any floating type that computes
  DType grad_dtype = kFloat32;   // float64 only with a float64 param and the reverse
  bool first = false;
};
struct SgdStep {
  const SgdTensor* tensors = nullptr;
  int64_t count = 0;
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
};
extern KernelTable<SgdStep> sgd_step;

// average += weight * (value - average): an exponential moving average with decay 1 - weight.
struct LerpTensor {
  void* average = nullptr;
  const void* value = nullptr;
  int64_t numel = 0;
  DType average_dtype = kFloat32;
  DType value_dtype = kFloat32;  // as for gradients
};
struct LerpStep {
  const LerpTensor* tensors = nullptr;
  int64_t count = 0;
  double weight = 0;
};
extern KernelTable<LerpStep> lerp_step;

// grad *= factor; *found_inf becomes 1 when any grad is infinite or NaN (it is never set to 0).
struct UnscaleTensor {
  void* grad = nullptr;
  int64_t numel = 0;
  DType dtype = kFloat32;
};
struct UnscaleStep {
  const UnscaleTensor* tensors = nullptr;
  int64_t count = 0;
  double factor = 1;
  float* found_inf = nullptr;  // on the device of the gradients
};
extern KernelTable<UnscaleStep> unscale_step;

// AdamW with moments in eight bits: blocks of kBlock values share a scale (the largest magnitude in the block), each value
// is the index of the nearest entry of a 256-entry table (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
// Quantization"). The arithmetic between reading and writing the moments is AdamW's.
inline constexpr int64_t kBlock = 256;
struct QuantizedTensor {
  void* param = nullptr;
  const void* grad = nullptr;
  uint8_t *avg = nullptr, *square = nullptr;            // indices
  float *avg_scale = nullptr, *square_scale = nullptr;  // one per block
  float* master = nullptr;
  int64_t numel = 0;
  DType param_dtype = kFloat32;  // float32, bfloat16 or float16
  DType grad_dtype = kFloat32;
};
struct QuantizedAdamStep {
  const QuantizedTensor* tensors = nullptr;
  int64_t count = 0;
  const float *avg_table = nullptr, *square_table = nullptr;  // 256 ascending values each: [-1, 1] and [0, 1]
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  double bias_correction1 = 1, bias_correction2 = 1;
  bool maximize = false;
};

}  // namespace sf::optim
