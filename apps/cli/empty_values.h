// Options that are given as "": CLI11 takes the default of a number, and no model, file or folder is called that.
#pragma once
#include <CLI/CLI.hpp>

namespace sf::cli {

// ValidationError naming the first option of the program's command that was given as "". Prompts may be empty, and so
// may what is looked for in names.
void refuse_empty_values(const CLI::App& program);
void refuse_empty_options(const CLI::App& command);  // the same of one command's own

}  // namespace sf::cli
