// diffusion's schedulers in Python.
#pragma once
#include "bind_tensor.h"

namespace sf::py {

void bind_schedulers(nb::module_& m);

}  // namespace sf::py
