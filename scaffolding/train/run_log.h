// RunLog: what a run says about itself: metrics.jsonl, TensorBoard's files and the progress line,
// from one record of each step.
// One thread at a time.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "scaffolding/train/event_file.h"
#include "scaffolding/train/metrics_file.h"
#include "scaffolding/train/progress_line.h"
#include "scaffolding/train/run_state.h"

namespace sf::train {

struct StepRecord {
  double loss = 0, lr = 0, grad_norm = 0;    // the norm before clipping
  int64_t samples = 0;                       // of this step
  std::map<std::string, double> evaluation;  // empty where there was none
};

enum class Progress : uint8_t { Quiet, Lines, Terminal };

class RunLog {
 public:
  RunLog(const RunOptions& options, const RunState& state, std::optional<int64_t> last_step, Progress progress);
  // After state.step went up. Adds the step to state's sums, writes a line where one is due (every logging_steps, with
  // an evaluation, at the last step) and returns what to show now, often nothing.
  std::string record(const StepRecord& r, RunState& state);
  std::string finish();  // what to show at the end; everything is on the disk
  void sync();
  const std::shared_ptr<EventFile>& tensorboard() const { return events_; }  // null where there is none

 private:
  int64_t logging_steps_;
  std::optional<int64_t> last_step_;
  std::optional<MetricsFile> metrics_;
  std::shared_ptr<EventFile> events_;  // whoever took it may keep it
  std::optional<ProgressLine> progress_;
  double since_;         // when the samples were begun
  int64_t samples_ = 0;  // since then
};

}  // namespace sf::train
