#include "apps/cli/command_tree.h"

#include <map>
#include <sstream>

#include "apps/cli/quantize_option.h"
#include "apps/cli/samplers.h"
#include "scaffolding/models/single_file/description.h"

namespace sf::cli {

static std::vector<std::string> choices_of(const std::string& name) {
  if (name == "--sampler") return sampler_names();
  if (name == "--kind") return models::described_kinds();
  if (name == "--hires-upscaler") return {"latent", "bicubic", "lanczos"};
  if (name == "--dtype") return {"float32", "bfloat16", "float16"};
  if (name == "--quantize") return quantize_words();
  if (name == "--prompt-syntax") return {"plain", "weighted"};
  if (name == "shell") return {"bash", "zsh", "fish"};
  return {};
}

std::vector<OptionEntry> options(const CLI::App& command) {
  std::vector<OptionEntry> all;
  for (const CLI::Option* o : command.get_options()) {
    OptionEntry e;
    for (auto& name : o->get_snames()) e.names.push_back("-" + name);
    for (auto& name : o->get_lnames()) e.names.push_back("--" + name);
    if (o->get_positional()) e.positional = o->get_name(true).substr(0, o->get_name(true).find(','));
    bool flag = o->get_items_expected_max() == 0 || o->get_type_size_max() == 0;
    if (!flag) e.value = o->get_type_name().substr(0, o->get_type_name().find(':'));
    e.description = o->get_description();
    e.default_value = o->get_default_str();
    e.choices = choices_of(e.names.empty() ? e.positional : e.names.back());
    all.push_back(std::move(e));
  }
  return all;
}

std::vector<CommandEntry> commands(CLI::App& program) {
  std::vector<CommandEntry> all;
  for (CLI::App* c : program.get_subcommands({})) {
    CommandEntry e{c->get_name(), c->get_description(), options(*c), {}};
    std::istringstream lines(c->get_footer());
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("  scaffolding")) e.examples.push_back(line.substr(2));
    all.push_back(std::move(e));
  }
  return all;
}

}  // namespace sf::cli
