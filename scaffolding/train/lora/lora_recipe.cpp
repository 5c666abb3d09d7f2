#include "scaffolding/train/lora/lora_recipe.h"

#include "scaffolding/core/error.h"

namespace sf::train {

void LoraRecipe::check() const {
  SF_CHECK(!resolution || *resolution > 0, "train-lora: the resolution must be above 0, got ", resolution.value_or(0));
  SF_CHECK(caption_dropout >= 0 && caption_dropout <= 1, "train-lora: caption_dropout must be from 0 to 1, got ",
           caption_dropout);
  SF_CHECK(batch_size > 0, "train-lora: batch_size must be above 0, got ", batch_size);
  SF_CHECK(learning_rate > 0, "train-lora: learning_rate must be above 0, got ", learning_rate);
  SF_CHECK(warmup_steps >= 0 && warmup_steps <= max_steps, "train-lora: warmup_steps must be from 0 to max_steps, ",
           max_steps, ", got ", warmup_steps);
  run("").check({});
}

RunOptions LoraRecipe::run(const std::string& output_dir) const {
  RunOptions out;
  out.output_dir = output_dir;
  out.max_steps = max_steps;
  out.gradient_accumulation_steps = gradient_accumulation_steps;
  out.max_grad_norm = max_grad_norm;
  out.mixed_precision = mixed_precision;
  out.checkpointing_steps = checkpointing_steps;
  out.checkpoints_total_limit = 1;
  return out;
}

diffusion::TrainingOptions LoraRecipe::objective() const {
  diffusion::TrainingOptions out;
  out.snr_gamma = snr_gamma;
  out.noise_offset = noise_offset;
  return out;
}

}  // namespace sf::train
