#include "bind_generator.h"

namespace sf::py {

nb::object wrap_generator(const Generator& g) { return nb::cast(PyGenerator{g}); }

void bind_generator(nb::module_& m) { nb::class_<PyGenerator>(m, "Generator"); }

}  // namespace sf::py
