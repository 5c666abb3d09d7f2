// What scaffolding.profiler asks of the library.
#pragma once
#include <nanobind/nanobind.h>

namespace sf::py {
void bind_profiler(nanobind::module_& m);
}
