#include <iostream>

#include "apps/cli/commands.h"
#include "scaffolding/core/version.h"

void sf::cli::add_version(CLI::App& program) {
  auto* command = program.add_subcommand("version", "Print the version and how the library was built");
  command->footer("Example:\n  scaffolding version");
  command->callback([] { std::cout << "scaffolding " << version() << " (" << build_info() << ")\n"; });
}
