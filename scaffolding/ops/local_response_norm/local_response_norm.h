// Normalisation over neighbouring channels.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input[N, C, ...] / (k + alpha * mean of input^2 over size neighbouring channels)^beta (Krizhevsky et al. 2012).
// Channels past the ends count as zero.
Tensor local_response_norm(const Tensor& input, int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1);

}  // namespace sf
