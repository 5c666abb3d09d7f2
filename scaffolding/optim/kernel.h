// Passes over many tensors at once: the contract with backends. Pointers address numel elements each on the device, in
// one order; arrays of descriptors live on the host for the duration of the call. AdamW's is in ops/adamw.
#pragma once
#include "scaffolding/core/kernel.h"
#include "scaffolding/ops/adamw/kernel.h"

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
  const double* numbers = nullptr;  // as AdamWStep's
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
  const double* weight_there = nullptr;  // on CUDA: read from device memory instead, for steps that are captured
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
  const float* scale = nullptr;  // on CUDA: the factor is 1 / *scale, in device memory, for steps that are captured
  float* found_inf = nullptr;    // on the device of the gradients
};
extern KernelTable<UnscaleStep> unscale_step;

// The numbers of a captured step from a group's settings {lr, beta1, beta2, eps, weight_decay}: advances the step
// count, unless the step is skipped, and works out the bias corrections of the new one. CUDA only.
struct NumbersOfStep {
  const double* settings = nullptr;
  float* count = nullptr;            // null: no bias correction
  const float* found_inf = nullptr;  // null, or other than 0 where the step is to be skipped
  double* numbers = nullptr;         // [kStepNumbers]
  Device device;
};
extern KernelTable<NumbersOfStep> numbers_of_step;

// GradScaler's update of a scale in device memory: grows after `interval` steps in a row without overflow, shrinks
// after one with. CUDA only.
struct ScaleUpdate {
  float *scale = nullptr, *tracker = nullptr;
  const float* found_inf = nullptr;
  float growth = 2, backoff = 0.5f, interval = 2000;
  Device device;
};
extern KernelTable<ScaleUpdate> scale_update;

// AdamW with moments in eight bits: blocks of kBlock values share a scale, the largest magnitude in the block, and each
// value is the index of the nearest level of a dynamic map (Dettmers et al. 2022,
// "8-bit Optimizers via Block-wise Quantization").
// Between reading and writing the moments the arithmetic is AdamW's, in float32.
inline constexpr int64_t kBlock = 256;
// Levels of a map for magnitudes in [0, 1]. The first moment has 7 bits and a sign: index 127 + k for +levels[k], 127 -
// k for -levels[k], k < 128. The second has 8 bits: index k.
struct DynamicMap {
  static constexpr int kLowestExponent = 127 - 24, kCells = 25 << 8;  // cells of 1/256 of a power of two, from 2^-24 on
  float levels[257];                                                  // ascending; one past the last is infinite
  float midpoints[256];                                               // between k and k + 1
  int32_t cells[kCells];  // the level nearest to the cell's smallest value; a cell holds at most one midpoint
  int count;
};
struct QuantizedTensor {
  void* param = nullptr;
  const void* grad = nullptr;
  uint8_t *avg = nullptr, *square = nullptr;            // indices
  float *avg_scale = nullptr, *square_scale = nullptr;  // one per block
  float* master = nullptr;                              // float32 weights behind a 16-bit param
  int64_t numel = 0;
  DType param_dtype = kFloat32;  // float32, bfloat16 or float16
  DType grad_dtype = kFloat32;
};
struct QuantizedAdamStep {
  const QuantizedTensor* tensors = nullptr;
  int64_t count = 0;
  const DynamicMap *avg_map = nullptr, *square_map = nullptr;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  double bias_correction1 = 1, bias_correction2 = 1;
  bool maximize = false;
  const double* numbers = nullptr;  // as AdamWStep's
};
extern KernelTable<QuantizedAdamStep> quantized_adam_step;

}  // namespace sf::optim
