// Private to the schedulers: a factor before a tensor, such as sigma * noise. In diffusers it is a 0-d tensor, which
// torch rounds to the dtype of a 16-bit tensor where it comes first; a plain number, and a 0-d tensor that comes
// second, it keeps in 32 bits.
#pragma once
#include <concepts>

#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::diffusion {

template <std::floating_point F> Tensor operator*(F factor, const Tensor& x) {
  return mul(scalar_tensor(double(factor), kFloat64), x);
}

}  // namespace sf::diffusion
