// What sf.fuse is made of.
#pragma once
#include <nanobind/nanobind.h>

namespace sf::py {
void bind_fuse(nanobind::module_& m);

}  // namespace sf::py
