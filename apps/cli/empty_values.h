// Options that are given as "": CLI11 takes the default of a number, and "" is no name of a model, a file or a folder.
#pragma once
#include <CLI/CLI.hpp>

namespace sf::cli {

// ValidationError naming the first option of the program's command that was given without a value. Prompts may be empty,
// and so may what is looked for in names.
void refuse_empty_values(const CLI::App& program);

}  // namespace sf::cli
