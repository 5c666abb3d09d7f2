#include <iostream>
#include <string>

#include "apps/cli/commands.h"
#include "scaffolding/core/version.h"

void sf::cli::add_version(CLI::App& program) {
  const auto text = [] { return std::string("scaffolding ") + version() + " (" + build_info() + ")"; };
  program.set_version_flag("--version", text, "Print the version and exit, as the subcommand version does");
  auto* command = program.add_subcommand("version", "Print the version and how the library was built");
  command->footer("Example:\n  scaffolding version");
  command->callback([text] { std::cout << text() << '\n'; });
}
