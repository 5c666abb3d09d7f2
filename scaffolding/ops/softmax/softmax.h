// softmax and log_softmax over one dimension.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});
Tensor log_softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});

}  // namespace sf
