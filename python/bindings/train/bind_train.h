// Training in Python: _core._train.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

void bind_trainer(nb::module_& train);  // bind_trainer.cpp: the loop over Python's parts

}  // namespace sf::py
