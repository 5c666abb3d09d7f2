// Activations by the names that configs use.
#pragma once
#include "scaffolding/nn/activation.h"

namespace sf::models {

// "swish" and "silu", "mish", "gelu", "relu". ValueError naming `who` and these for another.
std::shared_ptr<nn::Module> make_activation(const char* who, const std::string& name);

}  // namespace sf::models
