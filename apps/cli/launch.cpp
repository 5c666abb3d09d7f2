#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "apps/cli/commands.h"
#include "scaffolding/core/cores.h"
#include "scaffolding/core/error.h"
#include "scaffolding/distributed/launcher.h"

namespace sf::cli {

namespace {

struct Options {
  std::string processes = "1", nodes = "1", run_id = "none", python = "python3", endpoint;
  int max_restarts = 0, port = 0;
  double regrow = distributed::LaunchOptions().regrow_seconds, stopped = distributed::LaunchOptions().stopped_seconds;
  bool no_python = false, module = false, standalone = false;
  std::vector<std::string> script;
};

int number(const std::string& option, const std::string& text) {
  if (text == "auto" || text == "cpu") return usable_cores();
  char* end = nullptr;
  long value = std::strtol(text.c_str(), &end, 10);
  SF_CHECK(!text.empty() && *end == 0 && value > 0 && value <= 4096, "launch: ", option,
           " must be a number from 1 to 4096, got '", text, "'");
  return int(value);
}

bool in_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::string folders = path ? path : "";
  for (size_t at = 0; at <= folders.size();) {
    size_t end = std::min(folders.find(':', at), folders.size());
    if (access((folders.substr(at, end - at) + "/" + program).c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

// On several machines: by what starts processes there.
[[noreturn]] void over_machines(int nodes, int processes, const std::vector<std::string>& command) {
  std::vector<std::string> words;
  bool slurm = std::getenv("SLURM_JOB_ID") && in_path("srun");
  SF_CHECK(slurm || in_path("mpirun"), "launch: --nnodes ", nodes,
           " needs srun, in a job of Slurm's, or mpirun; neither is here. Install openmpi-bin, or start the script on "
           "each machine with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set");
  if (slurm) words = {"srun", "--nodes=" + std::to_string(nodes), "--ntasks-per-node=" + std::to_string(processes)};
  else words = {"mpirun", "-n", std::to_string(nodes * processes), "-N", std::to_string(processes)};
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> arguments;
  for (auto& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  sf::fail<sf::RuntimeError>("launch: ", words[0], " cannot be started");
}

void run(const Options& o) {
  SF_CHECK(!o.script.empty(), "launch: name a script, and its arguments");
  SF_CHECK(o.nodes.find(':') == std::string::npos, "launch: --nnodes must be one number, got '", o.nodes, "'");
  std::vector<std::string> command;
  if (!o.no_python) command = {o.python, "-u"};
  if (o.module) command.push_back("-m");
  command.insert(command.end(), o.script.begin(), o.script.end());
  size_t colon = o.processes.find(':');
  bool is_range = colon != std::string::npos;
  int nodes = number("--nnodes", o.nodes);
  int processes = number("--nproc-per-node", is_range ? o.processes.substr(colon + 1) : o.processes);
  int least = is_range ? number("--nproc-per-node", o.processes.substr(0, colon)) : 0;
  SF_CHECK(least <= processes, "launch: --nproc-per-node MIN:MAX must have MIN up to MAX, got '", o.processes, "'");
  SF_CHECK(!is_range || nodes == 1, "launch: --nproc-per-node MIN:MAX is for one machine, got --nnodes ", nodes);
  if (nodes > 1) over_machines(nodes, processes, command);
  distributed::launch(
      {.command = command,
       .processes = processes,
       .min_processes = least,
       .max_restarts = o.max_restarts,
       .regrow_seconds = o.regrow,
       .stopped_seconds = o.stopped,
       .port = o.port,
       .run_id = o.run_id,
       .say = [](const std::string& line) { std::cerr << "scaffolding launch: " << line << std::endl; }});
}

}  // namespace

void add_launch(CLI::App& program) {
  auto* command = program.add_subcommand(
      "launch", "Start a script in several processes, as torchrun does: launch [OPTIONS] script [arguments]");
  auto o = std::make_shared<Options>();
  command->add_option(
      "--nproc-per-node,--nproc_per_node", o->processes,
      "How many processes on each machine, or auto: one for each core. MIN:MAX: MAX, and after a failure "
      "down to MIN");
  command->add_option("--nnodes", o->nodes, "How many machines; several are left to srun or mpirun");
  command
      ->add_option("--max-restarts,--max_restarts", o->max_restarts,
                   "How often all processes start again after one has failed")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--regrow-seconds", o->regrow,
                   "With MIN:MAX: after a failure MAX start again where all have run this long, fewer where not")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--stopped-seconds", o->stopped, "A process that has been stopped this long (SIGSTOP) has failed")
      ->check(CLI::PositiveNumber);
  command->add_option("--master-port,--master_port", o->port, "Port of the store; 0: any free one")
      ->check(CLI::Range(0, 65535));
  command->add_option("--rdzv-id,--rdzv_id", o->run_id, "A name of this run, for the scripts");
  command->add_option("--python", o->python, "The Python that runs the script");
  command->add_flag("--standalone", o->standalone, "One machine, as without it");
  command->add_flag("--no-python,--no_python", o->no_python, "The script is a program of its own");
  command->add_flag("-m,--module", o->module, "The script is a Python module");
  command->prefix_command();  // the script's options are its own
  command->footer(
      "Example:\n  scaffolding launch --nproc-per-node 4 train.py --epochs 3\n"
      "  scaffolding launch --nproc-per-node 1:4 --max-restarts 3 --no-python build/train");
  command->callback([o, command] {
    o->script = command->remaining();
    run(*o);
  });
}

}  // namespace sf::cli
