// Model repositories of the hub, and checkpoints in one file, in Python.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_hub(nb::module_& m);
void bind_single_file(nb::module_& m);

}  // namespace sf::py
