// --prompts: a file of what to draw, a line for each. Text has a prompt on each line, .jsonl an object whose fields are
// the command's options: {"prompt": "a cat", "seed": 7, "negative_prompt": "fog"}. Blank lines, and those of text that
// begin with #, are left out. Functions only.
#pragma once
#include "apps/cli/asked_options.h"

namespace sf::cli {

void add_prompts_option(CLI::App& command, GenerationSettings& settings);

struct PromptLine {
  std::string where;  // "prompts.txt:17"
  std::vector<AskedOption> asked;
};
// ValueError naming the file and the line for what is none of this: text that is not UTF-8, a field that is no option,
// files of more than 64 MiB or 100 000 lines, lines of more than 1 MiB.
std::vector<PromptLine> read_prompt_file(const std::string& path, const OptionReader& reader);

}  // namespace sf::cli
