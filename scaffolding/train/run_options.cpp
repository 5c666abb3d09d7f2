#include "scaffolding/train/run_options.h"

#include <cmath>

#include "scaffolding/core/error.h"

namespace sf::train {

static void check_positive(const char* name, std::optional<int64_t> v) {
  SF_CHECK(!v || *v > 0, "Trainer: ", name, " must be a positive number, got ", v.value_or(0));
}

void RunOptions::check(std::optional<int64_t> batches) const {
  check_positive("max_steps", max_steps);
  check_positive("max_epochs", max_epochs);
  check_positive("gradient_accumulation_steps", gradient_accumulation_steps);
  check_positive("checkpointing_steps", checkpointing_steps);
  check_positive("checkpoints_total_limit", checkpoints_total_limit);
  check_positive("logging_steps", logging_steps);
  check_positive("eval_steps", eval_steps);
  SF_CHECK(max_steps || max_epochs, "Trainer: one of max_steps and max_epochs must say when the run ends");
  SF_CHECK(!max_grad_norm || (*max_grad_norm > 0 && std::isfinite(*max_grad_norm)),
           "Trainer: max_grad_norm must be positive, got ", max_grad_norm.value_or(0));
  SF_CHECK(mixed_precision == "no" || mixed_precision == "bf16" || mixed_precision == "fp16",
           "Trainer: mixed_precision must be 'no', 'bf16' or 'fp16', got '", mixed_precision, "'");
  SF_CHECK(total_steps(batches) != 0, "Trainer: max_epochs=", max_epochs.value_or(0), " of ", batches.value_or(0),
           " batches make no step of gradient_accumulation_steps=", gradient_accumulation_steps);
}

std::optional<int64_t> RunOptions::total_steps(std::optional<int64_t> batches) const {
  std::optional<int64_t> by_epochs;
  if (max_epochs && batches) by_epochs = *max_epochs * *batches / gradient_accumulation_steps;
  if (max_steps && by_epochs) return std::min(*max_steps, *by_epochs);
  if (max_epochs && !max_steps) return by_epochs;
  return max_steps;
}

}  // namespace sf::train
