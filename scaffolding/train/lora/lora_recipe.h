// LoraRecipe: how a LoRA of a text-to-image pipeline's denoiser is trained. The defaults are those of usual recipes for
// a style or a thing in some tens of pictures.
#pragma once
#include "scaffolding/diffusion/training.h"
#include "scaffolding/models/adapters/new_lora.h"
#include "scaffolding/train/run_options.h"

namespace sf::train {

struct LoraRecipe {
  models::NewLora lora{.r = 16, .lora_alpha = 16, .target_modules = {"to_q", "to_k", "to_v", "to_out.0"}};
  std::optional<int64_t> resolution;  // pixels on a side; absent: what the denoiser was trained on
  bool flip = false;                  // half of the pictures are mirrored
  std::string caption;                // of all pictures, instead of their own
  double caption_dropout = 0;         // the share of steps that see the empty prompt instead
  int64_t max_steps = 800, batch_size = 1, gradient_accumulation_steps = 1, warmup_steps = 0;
  std::string schedule = "constant";  // of the learning rate, after warming up: a name of optim::get_scheduler
  double learning_rate = 1e-4, weight_decay = 0.01, max_grad_norm = 1;
  std::optional<double> snr_gamma;
  double noise_offset = 0;
  std::string mixed_precision = "no";
  bool gradient_checkpointing = false;
  int64_t checkpointing_steps = 200;
  uint64_t seed = 0;

  void check() const;  // ValueError
  RunOptions run(const std::string& output_dir) const;
  diffusion::TrainingOptions objective() const;
};

}  // namespace sf::train
