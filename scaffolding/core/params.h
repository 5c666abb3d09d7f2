// A parameter list in Python syntax ("input, dim=-1, keepdim=False"), read into names, kinds and defaults.
#pragma once
#include <span>
#include <string_view>

#include "scaffolding/core/op.h"

namespace sf::detail {
std::vector<ArgInfo> parse_params(const char* owner, std::string_view params, std::span<const ArgType> types);
}  // namespace sf::detail
