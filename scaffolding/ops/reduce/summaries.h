// Sums and means that pass over NaN, both extrema at once, and integrals over samples.
#pragma once
#include <tuple>

#include "scaffolding/core/tensor.h"

namespace sf {

Tensor nansum(const Tensor& input, const Shape& dim = {}, bool keepdim = false, std::optional<DType> dtype = {});
Tensor nanmean(const Tensor& input, const Shape& dim = {}, bool keepdim = false, std::optional<DType> dtype = {});
// The smallest and the largest element, along dim or of all.
std::tuple<Tensor, Tensor> aminmax(const Tensor& input, std::optional<int64_t> dim = {}, bool keepdim = false);
// The integral along dim of what has the values y at the places x (y's shape, or [n]), or at distances dx.
Tensor trapezoid(const Tensor& y, const Tensor& x = {}, double dx = 1, int64_t dim = -1);
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x = {}, double dx = 1, int64_t dim = -1);

}  // namespace sf
