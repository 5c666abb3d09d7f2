// The program `scaffolding`.
#include <iostream>

#include "apps/cli/commands.h"
#include "scaffolding/core/error.h"

int main(int argc, char** argv) {
  CLI::App program("Scaffolding: see what this build has and what this machine offers");
  program.require_subcommand(1);
  sf::cli::add_devices(program);
  sf::cli::add_env(program);
  sf::cli::add_ops(program);
  sf::cli::add_version(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return program.exit(e);
  } catch (const sf::Error& e) {
    std::cerr << "scaffolding: " << e.what() << "\n";
    return 1;
  }
  return 0;
}
