#include "scaffolding/models/parts/activations.h"

#include "scaffolding/core/error.h"

namespace sf::models {

std::shared_ptr<nn::Module> make_activation(const char* who, const std::string& name) {
  if (name == "swish" || name == "silu") return std::make_shared<nn::SiLU>();
  if (name == "mish") return std::make_shared<nn::Mish>();
  if (name == "gelu") return std::make_shared<nn::GELU>();
  if (name == "relu") return std::make_shared<nn::ReLU>();
  fail(who, ": act_fn must be swish, silu, mish, gelu or relu, got '", name, "'");
}

}  // namespace sf::models
