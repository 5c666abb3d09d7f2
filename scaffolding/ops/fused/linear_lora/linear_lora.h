// A linear layer with a low-rank side path (LoRA, Hu et al. 2021).
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// act(input[..., K] @ weight[N, K]^T + bias[N] + scale * (input @ down[R, K]^T) @ up[N, R]^T) + residual. activation:
// none, or geglu and swiglu, which halve the last dimension. The sum is rounded once where no gradient is recorded on a
// CPU.
Tensor linear_lora(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& down, const Tensor& up,
                   const Scalar& scale = 1, const std::string& activation = "none", const Tensor& residual = {});

// The same of h = scale * input @ down^T [..., R], which several layers of one input may have computed together. On a
// CPU, of one dtype and off the tape.
Tensor linear_lora_within(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& h,
                          const Tensor& up, const std::string& activation = "none");

}  // namespace sf
