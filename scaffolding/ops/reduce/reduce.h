// Reductions over any dimensions. An empty dim means all of them.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor sum(const Tensor& input, const Shape& dim = {}, bool keepdim = false, std::optional<DType> dtype = {});    // bool and integers sum to int64
Tensor mean(const Tensor& input, const Shape& dim = {}, bool keepdim = false, std::optional<DType> dtype = {});

}  // namespace sf
