// VaeImageProcessor in Python: pictures to the tensors of an autoencoder and back.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_image_processor(nb::module_& m);

}  // namespace sf::py
