// Running extrema and sums of exponentials along one dimension.
#pragma once
#include <tuple>

#include "scaffolding/core/tensor.h"

namespace sf {

// The largest (smallest) element so far and where it is, of equals the last; NaN from the first one on.
std::tuple<Tensor, Tensor> cummax(const Tensor& input, int64_t dim);
std::tuple<Tensor, Tensor> cummin(const Tensor& input, int64_t dim);
// log of the running sum of exp(input), without overflow.
Tensor logcumsumexp(const Tensor& input, int64_t dim);

}  // namespace sf
