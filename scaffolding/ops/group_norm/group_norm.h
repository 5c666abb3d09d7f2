// Group normalisation over the channel dimension of input[N, C, *], alone or with SiLU behind it, and instance norm.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// y = (input - mean_g) / sqrt(var_g + eps) * weight + bias, statistics over each of num_groups channel groups.
// The result keeps the input's memory format.
Tensor group_norm(const Tensor& input, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
Tensor group_norm_silu(const Tensor& input, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                       double eps = 1e-5);
// group_norm_silu(cat({input, other}, 1)); without a tensor of both where a kernel reads them as they lie.
Tensor cat_group_norm_silu(const Tensor& input, const Tensor& other, int64_t num_groups, const Tensor& weight = {},
                           const Tensor& bias = {}, double eps = 1e-5);

}  // namespace sf
