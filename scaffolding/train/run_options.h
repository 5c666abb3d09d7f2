// RunOptions: the plain settings of a training run, in diffusers' words, for C++'s Trainer and Python's.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace sf::train {

struct RunOptions {
  std::string output_dir;                        // empty: nothing is written
  std::optional<int64_t> max_steps, max_epochs;  // the run ends at whichever comes first; one must be given
  int64_t gradient_accumulation_steps = 1;       // batches for one step; counted across epochs
  std::optional<double> max_grad_norm;           // gradients are scaled so that their norm is at most that
  std::string mixed_precision = "no";            // "bf16", or "fp16" with a scaled loss
  std::optional<int64_t> checkpointing_steps = 500;
  std::optional<int64_t> checkpoints_total_limit;  // how many are kept; without one, all
  int64_t logging_steps = 10;  // lines of metrics.jsonl and points in TensorBoard: each the mean loss since the last
  std::optional<int64_t> eval_steps;
  bool tensorboard = true;  // event files in output_dir/logs

  // ValueError for settings out of range or against each other. batches: of an epoch, where that is known.
  void check(std::optional<int64_t> batches) const;
  // The step that the run ends with; none where only the data knows.
  std::optional<int64_t> total_steps(std::optional<int64_t> batches) const;
};

}  // namespace sf::train
