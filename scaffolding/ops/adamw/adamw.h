// One AdamW step over many tensors at once, in one pass over their memory.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  double grad_scale = 1;  // multiplies gradients first: 1 / loss scale, clipping factor
  bool maximize = false;
};
// params, exp_avgs and exp_avg_sqs are written in place; step counts from 1. masters (float32, may be empty or have
// empty entries) hold full-precision weights behind 16-bit params. Moments are float32 (float64 for float64 params);
// all contiguous.
void adamw_(const Tensors& params, const Tensors& grads, const Tensors& exp_avgs, const Tensors& exp_avg_sqs,
            int64_t step, const AdamWOptions& options = {}, const Tensors& masters = {});

}  // namespace sf
