// The program's commands and options as data, read from CLI11's tree: what shell completions, the man page and the list
// of examples are written from.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace sf::cli {

struct OptionEntry {
  std::vector<std::string> names;  // "-s", "--seed"; empty for a positional
  std::string value;               // "INT"; empty for a flag
  std::string description, default_value;
  std::vector<std::string> choices;  // where the values are a short list
  std::string positional;            // the name of one that needs no --name
};

struct CommandEntry {
  std::string name, description;
  std::vector<OptionEntry> options;
  std::vector<std::string> examples;  // command lines, each followed by what it shows where that is said
};

std::vector<CommandEntry> commands(CLI::App& program);
std::vector<OptionEntry> options(const CLI::App& command);

}  // namespace sf::cli
