// diffusion in Python: schedulers and pipelines.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_schedulers(nb::module_& m);
void bind_pipelines(nb::module_& m);

}  // namespace sf::py
