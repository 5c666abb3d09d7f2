// adamw: one optimiser step over a list of tensors, the contract with backends. torch.optim.AdamW's arithmetic:
//   g = grad_scale * grad  (negated to maximise);  p *= 1 - lr * weight_decay
//   m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2
//   p -= lr / bias_correction1 * m / (sqrt(v) / sqrt(bias_correction2) + eps)
// with bias_correction1 = 1 - beta1^t and bias_correction2 = 1 - beta2^t.
// Adam's weight decay is part of the gradient instead: g += weight_decay * p. AMSGrad divides by the largest v so far.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// All pointers address numel elements on the device, in one order. param: float32, bfloat16, float16 or float64; grad:
// any of those (float64 only with float64 param and the reverse). The moments are float32,
// or float64 with a float64 param.
struct AdamWTensor {
  void* param = nullptr;
  const void* grad = nullptr;
  void* exp_avg = nullptr;
  void* exp_avg_sq = nullptr;
  void* max_exp_avg_sq = nullptr;  // AMSGrad's; of the moments' type
  float* master = nullptr;         // float32 weights behind a 16-bit param: read instead of it, and both are written
  int64_t numel = 0;
  DType param_dtype = kFloat32;
  DType grad_dtype = kFloat32;
};
// What a captured step reads from device memory, float64 each, by place: of all optimizers, so that SGD's momentum lies
// where Adam's beta1 does.
enum StepNumber : uint8_t {
  kStepLr,
  kStepSize,             // lr / bias_correction1
  kStepRootCorrection2,  // sqrt(bias_correction2)
  kStepSkip,             // other than 0: nothing changes
  kStepBeta1,
  kStepBeta2,  // SGD's dampening
  kStepEps,
  kStepWeightDecay,
  kStepNumbers
};
// The array lives on the host for the duration of the call.
struct AdamWStep {
  const AdamWTensor* tensors = nullptr;
  int64_t count = 0;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  double bias_correction1 = 1, bias_correction2 = 1;
  double grad_scale = 1;  // 1 / loss scale, times the clipping factor
  bool maximize = false;
  bool decoupled = true;  // weight decay beside the gradient (AdamW), or in it (Adam)
  // on CUDA, for steps that are captured: StepNumber's, in device memory, instead of the numbers above
  const double* numbers = nullptr;
};
extern KernelTable<AdamWStep> adamw_step;

}  // namespace sf
