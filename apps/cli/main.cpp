// The program `scaffolding`. Exit status: 0 done, 2 what was asked for cannot be (one line on standard error says why),
// 130 stopped by Ctrl-C.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <string_view>

#include "apps/cli/aliases.h"
#include "apps/cli/commands.h"
#include "apps/cli/empty_values.h"
#include "apps/cli/openmp_waits.h"
#include "apps/cli/scarce_memory.h"
#include "apps/cli/suggestions.h"
#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/run.h"
#include "scaffolding/io/json_error.h"

namespace {

constexpr int kBadInput = 2, kInterrupted = 130;

// Words that no option takes, in the order in which they were given.
std::string too_much(const CLI::App& program, const CLI::App& command) {
  std::vector<std::string> words = program.remaining();  // before the command
  const bool prompt = words.empty() && command.get_option_no_throw("--prompt");
  for (auto& word : command.remaining()) words.push_back(word);
  constexpr size_t kShown = 8;
  std::string all;
  for (size_t i = 0; i < std::min(words.size(), kShown); ++i)
    all += (i == 0 ? "'" : ", '") + sf::printable(words[i]) + "'";
  if (words.size() > kShown) all += ", ...";
  return command.get_name() + ": does not expect " + all +
         (prompt ? "; a prompt of several words stands in quotes" : "");
}

// What CLI11 says about arguments, in one line with where to read on.
std::string parse_error(CLI::App& program, const CLI::ParseError& e, const std::string& first) {
  std::string why = e.what(), command;
  std::replace(why.begin(), why.end(), '\n', ' ');
  if (auto chosen = program.get_subcommands(); !chosen.empty()) {
    command = chosen[0]->get_name() + " ";
    if (size_t at = why.find(": At Most 1 required"); at != why.npos)
      why = why.substr(0, at) + ": is given more than once, perhaps under another program's name too";
    if (dynamic_cast<const CLI::ExtrasError*>(&e)) why = too_much(program, *chosen[0]);
  } else if (first.empty() || first[0] == '-') {
    why += ", such as txt2img";
  } else {
    std::vector<std::string> names;
    for (const CLI::App* known : program.get_subcommands({})) names.push_back(known->get_name());
    why = "there is no command '" + sf::printable(first) + "'" + sf::cli::did_you_mean(first, names);
  }
  return why + (why.ends_with('?') ? " " : "; ") + "scaffolding " + command + "--help tells more";
}

int refuse(const std::string& why) {
  std::cerr << "scaffolding: " << why << "\n";
  return kBadInput;
}

}  // namespace

static int run(int argc, char** argv) {
  CLI::App program("Scaffolding: run and train diffusion models, and see what this build and machine offer");
  program.require_subcommand(1);
  bool parse_only = false;
  program.add_flag("--parse-only", parse_only, "Only see whether the arguments are understood");
  program.parse_complete_callback([&] {
    sf::cli::refuse_empty_values(program);
    if (parse_only) throw CLI::Success();
  });
  sf::cli::add_txt2img(program);
  sf::cli::add_img2img(program);
  sf::cli::add_txt2vid(program);
  sf::cli::add_img2vid(program);
  sf::cli::add_inpaint(program);
  sf::cli::add_interpolate(program);
  sf::cli::add_upscale(program);
  sf::cli::add_demo(program);
  sf::cli::add_serve(program);
  sf::cli::add_train(program);
  sf::cli::add_train_lora(program);
  sf::cli::add_launch(program);
  sf::cli::add_eval(program);
  sf::cli::add_convert(program);
  sf::cli::add_quantize(program);
  sf::cli::add_inspect(program);
  sf::cli::add_models(program);
  sf::cli::add_bench(program);
  sf::cli::add_devices(program);
  sf::cli::add_env(program);
  sf::cli::add_ops(program);
  sf::cli::add_version(program);
  sf::cli::add_help(program);
  sf::cli::add_completion(program);
  try {
    const std::vector<std::string> words = sf::cli::in_our_words(program, {argv + std::min(argc, 1), argv + argc});
    std::vector<const char*> arguments{argv[0]};
    for (auto& word : words) arguments.push_back(word.c_str());
    program.parse(int(arguments.size()), arguments.data());
  } catch (const CLI::Success& e) {  // --help
    return program.exit(e);
  } catch (const CLI::ParseError& e) {
    return refuse(parse_error(program, e, argc > 1 ? argv[1] : ""));
  } catch (const sf::diffusion::Stopped&) {
    std::cerr << "scaffolding: stopped\n";
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const sf::NotSupported& e) {
    const std::string why = sf::cpu::why_no_kernels();
    return refuse(why.empty() ? e.what() : why);
  } catch (const std::exception& e) {
    return refuse(std::string_view(e.what()).starts_with("[json.") ? sf::io::json_error(e) : e.what());
  }
  if (!std::cout.flush()) return refuse("standard output cannot be written to");
  return 0;
}

int main(int argc, char** argv) {
  sf::cli::wait_sparingly(argv);
  sf::cli::prepare_for_scarce_memory();
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::cerr << "scaffolding: " << sf::cli::kMemoryRanOut << "\n";
    return kBadInput;
  }
}
