// softmax and log_softmax along one dimension, in float32 inside for 16-bit floats.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});  // exp(input) / sum(exp(input))
// its logarithm, without overflow
Tensor log_softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});

}  // namespace sf
