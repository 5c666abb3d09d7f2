// The part of the module that scaffolding.cuda is made of.
#pragma once
#include <nanobind/nanobind.h>

namespace sf::py {
void bind_cuda(nanobind::module_& m);
void bind_cuda_kernel(nanobind::module_& m);

}  // namespace sf::py
