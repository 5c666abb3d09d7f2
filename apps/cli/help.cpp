// `scaffolding help`: a command's help, all examples, or the man page, written from the tree of commands.
#include <algorithm>
#include <memory>
#include <sstream>

#include "apps/cli/aliases.h"
#include "apps/cli/command_tree.h"
#include "apps/cli/commands.h"
#include "apps/cli/files.h"
#include "apps/cli/suggestions.h"
#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"
#include "scaffolding/core/version.h"

namespace sf::cli {

namespace {

// As roff reads it: backslashes and hyphens escaped, and no line that begins as a request.
std::string roff(const std::string& text) {
  std::string out;
  for (char c : text) {
    if ((out.empty() || out.back() == '\n') && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else out += c;
  }
  return out;
}

void write_options(std::ostream& out, const std::vector<OptionEntry>& options) {
  for (auto& o : options) {
    out << ".TP\n";
    for (size_t i = 0; i < o.names.size(); ++i) out << (i ? ", " : "") << "\\fB" << roff(o.names[i]) << "\\fR";
    if (o.names.empty()) out << "\\fI" << roff(o.positional) << "\\fR";
    else if (!o.value.empty()) out << " \\fI" << roff(o.value) << "\\fR";
    out << "\n" << roff(o.description);
    if (!o.default_value.empty()) out << " [" << roff(o.default_value) << "]";
    out << "\n";
  }
}

std::string man_page(CLI::App& program) {
  std::ostringstream out;
  out << ".TH SCAFFOLDING 1 \"\" \"scaffolding " << version()
      << "\" \"User Commands\"\n.SH NAME\nscaffolding \\- run and train diffusion models\n"
      << ".SH SYNOPSIS\n.B scaffolding\n\\fIcommand\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\n"
      << roff(program.get_description()) << ".\n"
      << "Pictures are made from prompts by a model that comes with the program, or by others in the layout of "
         "diffusers or in one checkpoint file.\n"
      << "Results are printed on standard output, and everything else on standard error.\n.SH COMMANDS\n";
  for (auto& c : commands(program)) {
    out << ".SS scaffolding " << roff(c.name) << "\n" << roff(c.description) << ".\n";
    write_options(out, c.options);
    if (c.examples.empty()) continue;
    out << ".PP\nExamples:\n.PP\n.nf\n.RS\n";
    for (auto& line : c.examples) out << roff(line) << "\n";
    out << ".RE\n.fi\n";
  }
  out << ".SH EXIT STATUS\n.TP\n.B 0\nDone.\n.TP\n.B 2\nWhat was asked for cannot be done; one line on standard error "
         "says why. No file is left half written.\n"
      << ".TP\n.B 130\nStopped by Ctrl\\-C.\n.SH ENVIRONMENT\n";
  for (auto& v : env::all()) out << ".TP\n.B " << roff(v.name) << "\n" << roff(v.help) << "\n";
  return out.str();
}

}  // namespace

void add_help(CLI::App& program) {
  auto* command = program.add_subcommand("help", "Print a command's help, all examples, or the man page");
  struct Options {
    std::string name, output;
    bool man = false, examples = false;
  };
  auto o = std::make_shared<Options>();
  command->add_option("command", o->name, "A command, such as txt2img; the overview without it");
  command->add_flag("--man", o->man, "The man page, for man -l or share/man/man1");
  command->add_flag("--examples", o->examples, "The examples of all commands, one in a line");
  command->add_option("-o,--output", o->output, "A file instead of standard output");
  command->footer(R"(Examples:
  scaffolding help txt2img
  scaffolding help --examples
  scaffolding help --man --output scaffolding.1)");
  command->callback([&program, o] {
    if (o->man) return print_text(man_page(program), o->output);
    std::string text;
    if (o->examples) {
      for (auto& c : commands(program))
        for (auto& line : c.examples) text += line + "\n";
      return print_text(text, o->output);
    }
    if (o->name.empty()) return print_text(program.help(), o->output);
    auto all = program.get_subcommands({});
    const std::string wanted = our_command(o->name);
    auto chosen = std::find_if(all.begin(), all.end(), [&](CLI::App* c) { return c->get_name() == wanted; });
    std::vector<std::string> names;
    for (auto& c : all) names.push_back(c->get_name());
    SF_CHECK(chosen != all.end(), "help: there is no command '", o->name, "'",
             did_you_mean(o->name, names, "`scaffolding --help` lists them"));
    print_text((*chosen)->help("scaffolding"), o->output);
  });
}

}  // namespace sf::cli
