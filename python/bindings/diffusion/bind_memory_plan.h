// Memory plans of pipelines in Python.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_memory_plan(nb::module_& m);  // of bind_pipelines

}  // namespace sf::py
