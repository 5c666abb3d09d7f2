// Generator in Python.
#pragma once
#include "python/bindings/core/bind_tensor.h"
#include "scaffolding/core/generator.h"

namespace sf::py {

struct PyGenerator {
  Generator generator;
};
nb::object wrap_generator(const Generator& g);
void bind_generator(nb::module_& m);

}  // namespace sf::py
