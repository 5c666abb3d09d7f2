// Which known names a mistyped one may have meant.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sf::nn {

// The candidate with the fewest edits, or "" when none is near.
std::string closest(std::string_view name, const std::vector<std::string>& candidates);
// " (closest: 'conv_in.weight')", or "".
std::string closest_hint(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace sf::nn
