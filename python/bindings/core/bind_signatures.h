// inspect.signature of what nanobind makes.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_signatures(nb::module_& m);  // after a function, a class and a method of it

}  // namespace sf::py
