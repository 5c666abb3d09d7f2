// What autoencoders give besides tensors.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_autoencoders(nb::module_& models);

}  // namespace sf::py
