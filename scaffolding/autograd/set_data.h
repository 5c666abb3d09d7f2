// tensor.data = other: the tensor shows other's memory from now on. Its identity, gradient, hooks and place on the tape
// stay, so that whoever holds the tensor (an optimizer, a second module) sees the new values.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::autograd {

// RuntimeError when to requires a gradient and from is not floating.
void set_data(const Tensor& to, const Tensor& from);
// How often a tensor was given other memory so: what has read addresses, as CUDA graphs have, must look again.
uint64_t data_moves();

}  // namespace sf::autograd
