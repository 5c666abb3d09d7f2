// assign_inplace without the copy, where nobody can tell: self's memory is replaced by y's.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::autograd {

// As assign_inplace(op, self, y). When self came from an op on the tape, is no view and is the only tensor over its storage, it takes y's storage instead of
// y's bytes: the same values, and one pass over memory less. y must not be used afterwards.
Tensor& take_over(const char* op, Tensor& self, const Tensor& y);

}  // namespace sf::autograd
