// KeptFloat32: a model some of whose tensors overflow in float16.
#pragma once
#include <string>

namespace sf::models {

struct KeptFloat32 {
  virtual ~KeptFloat32() = default;
  // Whether a tensor is read as float32 where the model is loaded in float16.
  virtual bool kept_float32(const std::string& key) const = 0;
};

}  // namespace sf::models
