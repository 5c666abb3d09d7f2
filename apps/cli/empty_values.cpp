#include "apps/cli/empty_values.h"

#include <algorithm>

namespace sf::cli {

// "--prompt", "--negative-prompt", an XL's "--prompt-2"; the prompts of interpolate.
static bool may_be_empty(const CLI::Option& option) {
  const std::string name = option.get_name();
  if (name == "from" || name == "to" || name == "--contains" || name == "prompt") return true;
  return name.ends_with("prompt") || (name.find("prompt-") != name.npos && name.back() >= '0' && name.back() <= '9');
}

void refuse_empty_options(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const auto& values = option->results();
    if (option->count() == 0 || option->get_expected_max() == 0 || may_be_empty(*option)) continue;
    if (std::any_of(values.begin(), values.end(), [](const std::string& v) { return v.empty(); }))
      throw CLI::ValidationError(option->get_name(), "must not be empty; leave it out for its default");
  }
}

void refuse_empty_values(const CLI::App& program) {
  for (const CLI::App* command : program.get_subcommands()) {
    refuse_empty_options(*command);
    refuse_empty_values(*command);
  }
}

}  // namespace sf::cli
