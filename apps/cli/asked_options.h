// Options that are given by name and text, not on the command line: fields of a line of --prompts, values of --grid.
// They go through the command's own parser, so that names, ranges and errors are the same.
#pragma once
#include "apps/cli/generation.h"

namespace sf::cli {

struct AskedOption {
  std::string name;                 // "negative-prompt" or "negative_prompt"
  std::vector<std::string> values;  // none of a flag, which is turned on
};

class OptionReader {
 public:
  using AddOptions = void (*)(CLI::App& command, GenerationSettings& settings);
  explicit OptionReader(AddOptions add_options);
  // `base` with these options besides. ValueError that begins with `where`: for a name that the command has not, or
  // that is of the whole run (the model, where it runs, what is said), and for values that the option does not take.
  GenerationSettings with(const GenerationSettings& base, const std::string& where,
                          const std::vector<AskedOption>& asked);
  // Its name as the command has it, "negative-prompt". ValueError as above.
  std::string known_name(const std::string& where, const std::string& name) const;
  bool is_flag(const std::string& known_name) const;
  bool takes_several(const std::string& known_name) const;  // values, each given by the option again

 private:
  const CLI::Option& option(const std::string& known_name) const;
  GenerationSettings settings_;  // that the parser writes into
  CLI::App app_;
};

}  // namespace sf::cli
