// gradcheck: compares the gradients that backward gives with finite differences, for users' own functions and ops.
// Inputs must be float64: in float32 the differences are noise.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::autograd {

struct GradcheckOptions {
  double eps = 1e-6;                 // step of the central differences
  double atol = 1e-5, rtol = 1e-3;   // |numeric - analytic| <= atol + rtol * |numeric|
  bool raise_exception = true;       // RuntimeError naming output, input and element; else false is returned
  bool check_undefined_grad = true;  // gradients of some outputs absent: backward must still work
};

// fn maps the inputs (those that require a gradient are checked) to one or several tensors; it must be deterministic.
// Every element of the Jacobian is compared: keep the inputs small.
bool gradcheck(const std::function<Tensors(const Tensors&)>& fn, const Tensors& inputs, GradcheckOptions options = {});

// gradcheck of the gradients: second derivatives. grad_outputs are random (seeded) unless given.
bool gradgradcheck(const std::function<Tensors(const Tensors&)>& fn, const Tensors& inputs, Tensors grad_outputs = {},
                   GradcheckOptions options = {});

}  // namespace sf::autograd
