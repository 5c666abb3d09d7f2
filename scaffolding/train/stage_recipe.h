// What recipes of training runs are made of: one stage's loop, in the words of RunOptions and AdamW, and the reading of
// a recipe's parts, in which every field is checked.
#pragma once
#include "scaffolding/diffusion/training.h"
#include "scaffolding/io/config.h"
#include "scaffolding/optim/lr_scheduler.h"
#include "scaffolding/train/run_options.h"

namespace sf::train {

struct StageRecipe {
  int64_t max_steps = 1000, batch_size = 16;
  double learning_rate = 1e-3, weight_decay = 0.01, adam_beta2 = 0.999, max_grad_norm = 1;
  int64_t warmup_steps = 100;
  // Absent: the rate falls along a cosine over the whole run. Else it stays after warming up and falls linearly to zero
  // over so many steps at the end, so that a run can be made longer before it is ended (transformers'
  // warmup_stable_decay).
  std::optional<int64_t> decay_steps;
  double ema_decay = 0.999;
  std::string mixed_precision = "no";  // "bf16": the products in bfloat16
  int64_t checkpointing_steps = 500, logging_steps = 20, num_workers = 1;
  io::Fields fields();
  void check(const std::string& who) const;  // ValueError
  void make_smoke();                         // few steps of few samples
  RunOptions run(const std::string& output_dir) const;
  std::unique_ptr<optim::LRScheduler> schedule(optim::Optimizer& optimizer) const;
};

struct AutoencoderRecipe : StageRecipe {
  double kl_weight = 1e-6;  // of the latents' divergence from unit noise
  double edge_weight = 1;   // of differences between neighbouring pixels, which keep outlines sharp
  // Of a run that starts from a pipeline (--pretrained): its autoencoder is trained on; else it is used as it is.
  bool train_pretrained = false;
  io::Fields fields();
};

struct DenoiserRecipe : StageRecipe {
  double text_learning_rate = 1e-4;     // the text encoder's, which knows much already
  double caption_dropout = 0.1;         // prompts replaced by the empty one, which guidance needs
  std::optional<double> snr_gamma = 5;  // Hang et al. 2023; absent: every timestep weighs the same
  double late_timesteps = 1;    // how much oftener timesteps of the noisier half are drawn, where the prompt decides
  int64_t sample_steps = 1000;  // samples every so many steps
  double guidance_scale = 4;    // of these, and the model's advice to the program
  std::vector<std::string> sample_prompts;
  io::Fields fields();
  void check(const std::string& who) const;
  diffusion::TrainingOptions objective() const;
};

// Reads a part of a recipe. TypeError for a value of another type, ValueError for an entry that names no field.
void read_recipe_part(const std::string& who, const io::Fields& fields, const io::Object& dict);
// An object by its name; TypeError naming it for anything else. `who` begins the error.
void check_recipe_object(const std::string& who, const char* name, const io::Object& part);
// Reads a recipe whose parts are objects, each checked to be one, beside other fields.
void read_recipe_objects(const std::string& who, const std::vector<std::pair<const char*, io::Object*>>& parts,
                         io::Fields others, const io::Object& file);
// The scheduler of a config with a _class_name; ValueError without one.
std::unique_ptr<diffusion::Scheduler> recipe_scheduler(const io::Object& config);
// A path as the recipe's file means it: relative to the folder that the file is in.
std::string beside_recipe(const std::string& recipe, const std::string& path);

}  // namespace sf::train
