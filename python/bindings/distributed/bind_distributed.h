// The module scaffolding._core._distributed: process groups. Called once, with the interpreter's lock.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_distributed(nb::module_& m);

}  // namespace sf::py
