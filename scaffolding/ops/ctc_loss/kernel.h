// The contract of ctc_loss with backends. All tensors are contiguous.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct CtcLoss {
  TensorView log_probs;                      // [T, N, C], float32 or float64
  TensorView targets;                        // int64 [N, S], in [0, C)
  TensorView input_lengths, target_lengths;  // int64 [N], at most T and S
  int64_t blank;
  TensorView loss;  // [N], log_probs' dtype
  TensorView dx;    // [T, N, C]: exp(log_probs) minus how likely each class is at each time, given the target;
                    // 0 beyond input_lengths. May be absent
};
extern KernelTable<CtcLoss> ctc_loss_kernel;

}  // namespace sf
