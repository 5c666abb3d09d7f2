// Animations that commands write: a picture forming, and the walk between two prompts. Functions only.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::cli {

// NotSupported naming the option where this build cannot write the format that the path's suffix says.
void check_animation(const char* option, const std::string& path);

// A picture after each step, and as it became in the end, which stays for a second and a half.
void save_forming(const std::string& path, Tensors steps, const Tensor& picture);

}  // namespace sf::cli
