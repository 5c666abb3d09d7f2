// The rules of nn.quantize_ in Python.
#pragma once
#include <nanobind/nanobind.h>

namespace sf::py {

void bind_quantize(nanobind::module_& m);

}  // namespace sf::py
