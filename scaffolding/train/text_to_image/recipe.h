// Recipe: everything that decides a text-to-image model trained from captioned icons: the data, the configs of its
// parts, and how long and with what each stage is trained. Read from JSON (models/emoji-128/train.json).
#pragma once
#include "scaffolding/data/icon_dataset.h"
#include "scaffolding/diffusion/schedulers/scheduler.h"
#include "scaffolding/io/config.h"
#include "scaffolding/optim/lr_scheduler.h"
#include "scaffolding/train/run_options.h"

namespace sf::train {

// One stage's loop, in the words of RunOptions and AdamW.
struct StageRecipe {
  int64_t max_steps = 1000, batch_size = 16;
  double learning_rate = 1e-3, weight_decay = 0.01, max_grad_norm = 1;
  int64_t warmup_steps = 100;
  // Absent: the rate falls along a cosine over the whole run. Else it stays after warming up and falls linearly to zero
  // over so many steps at the end, so that a run can be made longer before it is ended (transformers'
  // warmup_stable_decay).
  std::optional<int64_t> decay_steps;
  double ema_decay = 0.999;
  std::string mixed_precision = "no";  // "bf16": the products in bfloat16
  int64_t checkpointing_steps = 500, logging_steps = 20, num_workers = 1;
  io::Fields fields();
  RunOptions run(const std::string& output_dir) const;
  std::unique_ptr<optim::LRScheduler> schedule(optim::Optimizer& optimizer) const;
};

struct AutoencoderRecipe : StageRecipe {
  double kl_weight = 1e-6;  // of the latents' divergence from unit noise
  double edge_weight = 1;   // of differences between neighbouring pixels, which keep outlines sharp
  io::Fields fields();
};

struct DenoiserRecipe : StageRecipe {
  double text_learning_rate = 1e-4;     // the text encoder's, which knows much already
  double caption_dropout = 0.1;         // prompts replaced by the empty one, which guidance needs
  std::optional<double> snr_gamma = 5;  // Hang et al. 2023; absent: every timestep weighs the same
  double late_timesteps = 1;    // how much oftener timesteps of the noisier half are drawn, where the prompt decides
  int64_t backgrounds = 3;      // latents cached for each icon besides the one on white
  int64_t sample_steps = 1000;  // a grid of pictures every so many steps
  double guidance_scale = 4;    // of these, and the model's advice to the program
  std::vector<std::string> sample_prompts;
  io::Fields fields();
};

struct Recipe {
  std::string data;  // the tar; relative to the recipe's folder
  data::IconOptions icons;
  int64_t seed = 0, vocab_size = 4096, max_tokens = 32;
  io::Object vae, text_encoder, unet, scheduler;  // configs, as their config.json
  AutoencoderRecipe autoencoder;
  StageRecipe text_encoder_training;  // max_steps 0: none, it learns with the denoiser alone
  DenoiserRecipe denoiser;

  // TypeError and ValueError naming the file and the field. Fields that the file does not name keep their defaults;
  // unknown ones are refused.
  static Recipe read(const std::string& path);
  std::unique_ptr<diffusion::Scheduler> make_scheduler() const;  // of training and of sampling
  void make_smoke();  // the whole chain in a minute: tiny models, few steps. Its pictures are noise.
};

}  // namespace sf::train
