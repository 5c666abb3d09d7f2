// What a name on the command line may have been meant to be. Functions only.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace sf::cli {

// "; did you mean 'steps'?", whatever the case, or "" when nothing is near. then: what stands behind it either way.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known, const std::string& then = "");
// ValueError beginning with the option for a value that is none of a short list.
[[noreturn]] void refuse_choice(const char* option, const std::string& value, const std::vector<std::string>& known);
// The same hint for a path of a model that is not there, from what lies beside it.
std::string did_you_mean_path(const std::string& model);
// Small letters, and hyphens for underscores: as the program's options are written.
std::string as_option_name(std::string_view text);

}  // namespace sf::cli
