// What autoencoders give besides tensors.
#pragma once
#include "bind_tensor.h"

namespace sf::py {

void bind_autoencoders(nb::module_& models);

}  // namespace sf::py
