// batch_norm: the contract with backends. x[N, C, ...] contiguous or channels-last; y, dy,
// dx have x's dtype and layout.
// weight, bias, running statistics and gradients are [C], of any floating dtype. mean and rstd are [C] float32 (float64
// for float64 x), contiguous, always given. Statistics as group_norm's: shifted pieces combined in double.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// y = (x - mean) * rstd * weight + bias
// training: mean and variance of x over N and space; running_* (each optional) become (1 - momentum)
// old + momentum new,
//   with the unbiased variance, as torch.
// otherwise: running_mean and running_var are read, and mean and rstd are written from them for backward.
struct BatchNormForward {
  TensorView x, weight, bias;  // weight and bias optional
  TensorView running_mean, running_var;
  bool training = true;
  double momentum = 0.1, eps = 1e-5;
  TensorView y;  // may be x
  TensorView mean, rstd;
};
// training: dx = rstd weight (dy - mean(dy) - hat mean(dy hat));  otherwise dx = rstd weight dy. dx may be dy or x.
struct BatchNormBackward {
  TensorView x, dy, weight;
  bool training = true;
  TensorView mean, rstd;
  TensorView dx, dweight, dbias;  // dweight and dbias optional
};
extern KernelTable<BatchNormForward> batch_norm_forward;
extern KernelTable<BatchNormBackward> batch_norm_backward;

}  // namespace sf
