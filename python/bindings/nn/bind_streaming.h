// Streamers of modules as _core._streaming.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_streaming(nb::module_& m);

}  // namespace sf::py
