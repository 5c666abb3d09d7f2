// assign_inplace without the copy, where nobody can tell: self's memory is replaced by y's.
#pragma once
#include <functional>

#include "scaffolding/core/tensor.h"

namespace sf::autograd {

// As assign_inplace(op, self, y). When self came from an op on the tape, is no view and is the only tensor over its
// storage, it takes y's storage instead of y's bytes: the same values, and one pass over memory less.
// y must not be used afterwards.
Tensor& take_over(const char* op, Tensor& self, const Tensor& y);

// self = f(self) in place, where f's gradient may need self as it was: it keeps the old memory while self gets the
// result's, or, where self shares its memory, f is computed from a copy. f is called twice then, unless it is `random`.
Tensor& overwrite(const char* op, Tensor& self, const std::function<Tensor(const Tensor& x)>& f, bool random = false);

}  // namespace sf::autograd
