#include <cstdlib>
#include <iostream>

#include "apps/cli/commands.h"
#include "scaffolding/core/env.h"

void sf::cli::add_env(CLI::App& program) {
  auto* command = program.add_subcommand("env", "Print every environment variable, its value and what it does");
  command->footer("Example:\n  scaffolding env");
  command->callback([] {
    for (auto& v : env::all()) {
      bool set = std::getenv(v.name) != nullptr;
      std::cout << v.name << " = '" << env::text(v.name) << "'" << (set ? "" : " (default)") << "\n    " << v.help
                << "\n";
    }
  });
}
