// The C++ model of a Python object. Needs the GIL.
#pragma once
#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/models/model.h"

namespace sf::py {

// TypeError, beginning with op, for an object that is none.
inline models::Model& model_of(nb::handle o, const char* op = "model") {
  auto* model = dynamic_cast<models::Model*>(&module_of(o, op));
  SF_CHECK_AS(TypeError, model, op, ": ", type_name(o.ptr()), " is not a model with a config");
  return *model;
}

}  // namespace sf::py
