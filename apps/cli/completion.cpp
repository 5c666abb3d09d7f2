// `scaffolding completion`: what a shell needs to complete this program's command lines,
// written from the tree of commands.
#include <memory>
#include <sstream>

#include "apps/cli/command_tree.h"
#include "apps/cli/commands.h"
#include "apps/cli/files.h"
#include "apps/cli/suggestions.h"
#include "scaffolding/core/error.h"

namespace sf::cli {

namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (auto& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

std::string escaped(const std::string& text, const std::string& special) {
  std::string out;
  for (char c : text) {
    if (special.find(c) != std::string::npos) out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// In single quotes, as all three shells read them; fish also takes backslashes there.
std::string quoted(const std::string& text, bool fish = false) {
  std::string out = "'";
  for (char c : fish ? escaped(text, "\\'") : text)
    out += !fish && c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash(const std::vector<CommandEntry>& all) {
  std::ostringstream out;
  std::vector<std::string> names;
  for (auto& c : all) names.push_back(c.name);
  out << "# bash completion for scaffolding, written by `scaffolding completion bash`\n"
         "_scaffolding() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} "
         "words=\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
         "    COMPREPLY=($(compgen -W '"
      << joined(names) << " --help' -- \"$current\"))\n    return\n  fi\n  case $command:$before in\n";
  for (auto& c : all)
    for (auto& o : c.options) {
      if (o.choices.empty() || o.names.empty()) continue;
      for (auto& name : o.names) out << "    " << c.name << ":" << name << ") words='" << joined(o.choices) << "' ;;\n";
    }
  out << "  esac\n  if [ -z \"$words\" ]; then\n    case $command:$current in\n";
  for (auto& c : all) {
    std::vector<std::string> long_names;
    for (auto& o : c.options)
      if (!o.names.empty()) long_names.push_back(o.names.back());
    out << "      " << c.name << ":-*) words='" << joined(long_names) << "' ;;\n";
    for (auto& o : c.options)
      if (o.names.empty() && !o.choices.empty())
        out << "      " << c.name << ":*) words='" << joined(o.choices) << "' ;;\n";
  }
  out << "    esac\n  fi\n"
         "  if [ -n \"$words\" ]; then\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  else\n"
         "    compopt -o filenames 2>/dev/null\n"
         "    COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "  fi\n"
         "}\n"
         "complete -F _scaffolding scaffolding\n";
  return out.str();
}

std::string zsh(const std::vector<CommandEntry>& all) {
  std::ostringstream out;
  out << "#compdef scaffolding\n# zsh completion for scaffolding, written by `scaffolding completion "
         "zsh`\n_scaffolding() {\n  local -a commands\n  "
         "commands=(\n";
  for (auto& c : all) out << "    " << quoted(c.name + ":" + escaped(c.description, ":")) << "\n";
  out << "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  case $words[2] in\n";
  for (auto& c : all) {
    out << "    " << c.name << ")\n      shift words; (( CURRENT-- ))\n      _arguments";
    for (auto& o : c.options) {
      std::string values = o.choices.empty() ? "_files" : "(" + joined(o.choices) + ")";
      std::string said = "[" + escaped(o.description, "[]:\\") + "]";
      for (auto& name : o.names)
        out << " \\\n        " << quoted(name + said + (o.value.empty() ? "" : ":" + o.value + ":" + values));
      if (o.names.empty()) out << " \\\n        " << quoted(":" + o.positional + ":" + values);
    }
    out << "\n      ;;\n";
  }
  out << "  esac\n}\nif [ \"$funcstack[1]\" = _scaffolding ]; then _scaffolding \"$@\"; else compdef _scaffolding "
         "scaffolding; fi\n";
  return out.str();
}

std::string fish(const std::vector<CommandEntry>& all) {
  std::ostringstream out;
  out << "# fish completion for scaffolding, written by `scaffolding completion fish`\n";
  for (auto& c : all)
    out << "complete -c scaffolding -n __fish_use_subcommand -f -a " << c.name << " -d " << quoted(c.description, true)
        << "\n";
  for (auto& c : all)
    for (auto& o : c.options) {
      if (o.names.empty() && o.choices.empty()) continue;
      out << "complete -c scaffolding -n '__fish_seen_subcommand_from " << c.name << "'";
      for (auto& name : o.names) out << (name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1));
      if (!o.choices.empty()) out << (o.names.empty() ? " -f -a " : " -x -a ") << quoted(joined(o.choices), true);
      else if (!o.value.empty()) out << " -r";
      out << " -d " << quoted(o.description, true) << "\n";
    }
  return out.str();
}

}  // namespace

void add_completion(CLI::App& program) {
  auto* command = program.add_subcommand("completion", "Print what bash, zsh or fish needs to complete command lines");
  auto shell = std::make_shared<std::string>(), output = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")->required();
  command->add_option("-o,--output", *output, "A file instead of standard output");
  command->footer(R"(Examples:
  scaffolding completion bash --output ~/.local/share/bash-completion/completions/scaffolding
  scaffolding completion zsh --output ~/.zfunc/_scaffolding
  scaffolding completion fish --output ~/.config/fish/completions/scaffolding.fish)");
  command->callback([&program, shell, output] {
    auto all = commands(program);
    SF_CHECK(*shell == "bash" || *shell == "zsh" || *shell == "fish", "completion: there are bash, zsh and fish, got '",
             *shell, "'", did_you_mean(*shell, {"bash", "zsh", "fish"}));
    print_text(*shell == "bash" ? bash(all) : *shell == "zsh" ? zsh(all) : fish(all), *output);
  });
}

}  // namespace sf::cli
