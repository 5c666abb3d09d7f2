// Trajectories and their flow in Python.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_trajectories(nb::module_& m);  // after bind_schedulers

}  // namespace sf::py
