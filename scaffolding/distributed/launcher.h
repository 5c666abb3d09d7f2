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
  int min_processes = 0;       // they may become fewer, down to these, in a restart; 0: never
  int max_restarts = 0;        // of all processes, after one has failed
  double regrow_seconds = 60;  // all come back after an attempt that has lived as long; after a shorter one, fewer
  double stopped_seconds = 5;  // a process that has been stopped (SIGSTOP) for as long has failed
  int port = 0;                // of the store; 0: any free one
  std::string run_id = "none";
  double grace_seconds = 30;  // from asking a process to end to killing it
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line about what happens
};

// How many processes an attempt has after one of `count` that has lived for `seconds`: all where that was long enough,
// else the next smaller power of two, since something that they need may have gone.
int processes_after(const LaunchOptions& options, int count, double seconds);

// Returns when every process has ended well. RuntimeError naming the first rank that failed, and how, once nothing of
// them runs any more; so when a signal (SIGINT, SIGTERM, SIGHUP) asks for an end, which they are sent. The processes
// are killed where this one is.
void launch(const LaunchOptions& options);

}  // namespace sf::distributed
