// The training objective of diffusion models in Python.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_training(nb::module_& m);  // after bind_schedulers

}  // namespace sf::py
