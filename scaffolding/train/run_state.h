// RunState: how far a run has come; trainer_state.json of a checkpoint.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "scaffolding/train/run_options.h"

namespace sf::train {

struct Extremes {
  double lowest, highest;
  int64_t lowest_step, highest_step;
};

struct RunState {
  int64_t step = 0;     // optimizer steps, those that a GradScaler skipped included
  int64_t epoch = 0;    // finished ones
  int64_t samples = 0;  // seen
  double loss_sum = 0;  // of the steps since the last line of metrics.jsonl
  int64_t loss_steps = 0;
  int64_t ema_step = 0;
  std::map<std::string, Extremes> best;  // of each number that an evaluation gave

  void note(const std::map<std::string, double>& evaluation);
};

// A new file, not synced. The options are for people: a run takes its own.
void save_run_state(const RunState& state, const RunOptions& options, const std::string& path);
RunState load_run_state(const std::string& path);  // ValueError naming the file where it does not read so
std::string run_state_text(const RunState& state, const RunOptions& options);  // what the file holds
RunState parse_run_state(std::string_view text, const std::string& path);      // path: for errors

struct FitResult {
  bool stopped = false;  // by SIGINT or stop()
  int64_t step = 0, epoch = 0;
  double loss = 0;         // of the last step; NaN where there was none
  std::string checkpoint;  // the newest; empty without an output_dir
};

}  // namespace sf::train
