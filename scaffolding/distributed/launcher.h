// Starts the processes of a script on this machine, as torchrun does: serves their store, tells each its rank, ends all
// when one fails, and starts them again. Several machines are for srun and mpirun.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace sf::distributed {

struct LaunchOptions {
  std::vector<std::string> command;  // a program, looked for in PATH, and its arguments
  int processes = 1;
  int max_restarts = 0;  // of all processes, after one has failed
  int port = 0;          // of the store; 0: any free one
  std::string run_id = "none";
  double grace_seconds = 30;  // from asking a process to end to killing it
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line about what happens
};

// Returns when every process has ended well. RuntimeError naming the first rank that failed, and how, once nothing of
// them runs any more; so when a signal (SIGINT, SIGTERM, SIGHUP) asks for an end, which they are sent. The processes
// are killed where this one is.
void launch(const LaunchOptions& options);

}  // namespace sf::distributed
