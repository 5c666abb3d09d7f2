// Textual inversion in Python. Needs the GIL.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_textual_inversion(nb::module_& m);

}  // namespace sf::py
