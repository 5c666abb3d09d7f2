// One function per subcommand: adds it to the program.
#pragma once
#include <CLI/CLI.hpp>

namespace sf::cli {

void add_devices(CLI::App& program);
void add_env(CLI::App& program);
void add_ops(CLI::App& program);
void add_version(CLI::App& program);

}  // namespace sf::cli
