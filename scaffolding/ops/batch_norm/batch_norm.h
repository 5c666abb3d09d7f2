// Batch and instance normalisation of input[N, C, *].
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// Statistics over N and space for each channel. In training running_mean and running_var (optional, float) are updated
// in place: (1 - momentum) old + momentum new, with the unbiased variance.
// Otherwise they are what is subtracted and divided by.
Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, bool training = false, double momentum = 0.1, double eps = 1e-5);
// Statistics over space for each sample and channel (use_input_stats); else the running ones.
Tensor instance_norm(const Tensor& input, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {}, bool use_input_stats = true,
                     double momentum = 0.1, double eps = 1e-5);

}  // namespace sf
