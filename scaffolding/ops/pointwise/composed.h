// Elementwise functions that are made of other ops. Operands broadcast, and dtypes promote, as in pointwise.h.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// NaN, inf and -inf replaced: by 0, the largest and the smallest finite number of the dtype unless other numbers are
// given. Integers stay as they are.
Tensor nan_to_num(const Tensor& input, std::optional<double> nan = {}, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});
Tensor hypot(const Tensor& input, const Tensor& other);       // sqrt(input^2 + other^2) without overflow
Tensor copysign(const Tensor& input, const Tensor& other);    // |input| with the sign of other
Tensor heaviside(const Tensor& input, const Tensor& values);  // 0 below 0, 1 above, values at 0; one dtype
Tensor logaddexp(const Tensor& input, const Tensor& other);   // log(exp(input) + exp(other))
Tensor xlogy(const Tensor& input, const Tensor& other);       // input * log(other), 0 where input is 0
Tensor fmax(const Tensor& input, const Tensor& other);        // maximum and minimum that pass over NaN
Tensor fmin(const Tensor& input, const Tensor& other);

}  // namespace sf
