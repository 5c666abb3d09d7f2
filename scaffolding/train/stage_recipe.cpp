#include "scaffolding/train/stage_recipe.h"

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/error.h"

namespace sf::train {

namespace fs = std::filesystem;

io::Fields StageRecipe::fields() {
  return {{"max_steps", &max_steps},
          {"batch_size", &batch_size},
          {"learning_rate", &learning_rate},
          {"weight_decay", &weight_decay},
          {"adam_beta2", &adam_beta2},
          {"max_grad_norm", &max_grad_norm},
          {"warmup_steps", &warmup_steps},
          {"decay_steps", &decay_steps},
          {"ema_decay", &ema_decay},
          {"mixed_precision", &mixed_precision},
          {"checkpointing_steps", &checkpointing_steps},
          {"logging_steps", &logging_steps},
          {"num_workers", &num_workers}};
}

io::Fields AutoencoderRecipe::fields() {
  io::Fields all = StageRecipe::fields();
  all.insert(all.end(),
             {{"kl_weight", &kl_weight}, {"edge_weight", &edge_weight}, {"train_pretrained", &train_pretrained}});
  return all;
}

io::Fields DenoiserRecipe::fields() {
  io::Fields all = StageRecipe::fields();
  all.insert(all.end(), {{"text_learning_rate", &text_learning_rate},
                         {"caption_dropout", &caption_dropout},
                         {"snr_gamma", &snr_gamma},
                         {"late_timesteps", &late_timesteps},
                         {"sample_steps", &sample_steps},
                         {"guidance_scale", &guidance_scale},
                         {"sample_prompts", &sample_prompts}});
  return all;
}

void StageRecipe::check(const std::string& who) const {
  SF_CHECK(batch_size > 0, who, ": batch_size must be above 0, got ", batch_size);
  SF_CHECK(learning_rate > 0, who, ": learning_rate must be above 0, got ", learning_rate);
  SF_CHECK(adam_beta2 >= 0 && adam_beta2 < 1, who, ": adam_beta2 must be in [0, 1), got ", adam_beta2);
  SF_CHECK(warmup_steps >= 0, who, ": warmup_steps must not be negative, got ", warmup_steps);
  SF_CHECK(!decay_steps || (*decay_steps >= 0 && warmup_steps + *decay_steps <= max_steps), who,
           ": decay_steps must be 0 to max_steps - warmup_steps, ", max_steps - warmup_steps, ", got ",
           decay_steps.value_or(0));
  SF_CHECK(ema_decay >= 0 && ema_decay < 1, who, ": ema_decay must be in [0, 1), got ", ema_decay);
  SF_CHECK(num_workers >= 0, who, ": num_workers must not be negative, got ", num_workers);
  run("").check({});
}

void DenoiserRecipe::check(const std::string& who) const {
  StageRecipe::check(who);
  SF_CHECK(text_learning_rate >= 0, who, ": text_learning_rate must not be negative, got ", text_learning_rate);
  SF_CHECK(caption_dropout >= 0 && caption_dropout <= 1, who, ": caption_dropout must be 0 to 1, got ",
           caption_dropout);
  SF_CHECK(late_timesteps > 0, who, ": late_timesteps must be above 0, got ", late_timesteps);
  SF_CHECK(sample_steps > 0, who, ": sample_steps must be above 0, got ", sample_steps);
}

diffusion::TrainingOptions DenoiserRecipe::objective() const {
  diffusion::TrainingOptions o;
  o.snr_gamma = snr_gamma;
  o.condition_dropout = caption_dropout;
  if (late_timesteps != 1) o.timestep_bias_strategy = "later";
  o.timestep_bias_portion = 0.5;
  o.timestep_bias_multiplier = late_timesteps;
  return o;
}

void StageRecipe::make_smoke() {
  max_steps = 6;
  batch_size = 4;
  warmup_steps = 2;
  decay_steps.reset();
  checkpointing_steps = 3;
  logging_steps = 1;
}

RunOptions StageRecipe::run(const std::string& output_dir) const {
  RunOptions o;
  o.output_dir = output_dir;
  o.max_steps = max_steps;
  o.max_grad_norm = max_grad_norm;
  o.mixed_precision = mixed_precision;
  o.checkpointing_steps = checkpointing_steps;
  o.checkpoints_total_limit = 2;
  o.logging_steps = logging_steps;
  return o;
}

std::unique_ptr<optim::LRScheduler> StageRecipe::schedule(optim::Optimizer& optimizer) const {
  if (!decay_steps)
    return optim::get_scheduler("cosine", optimizer,
                                {.num_warmup_steps = warmup_steps, .num_training_steps = max_steps});
  return std::make_unique<optim::LambdaLR>(
      optimizer, [warm_up = double(warmup_steps), decay = double(*decay_steps), end = double(max_steps)](int64_t step) {
        if (double(step) < warm_up) return double(step) / warm_up;
        return decay == 0 ? 1.0 : std::clamp((end - double(step)) / decay, 0.0, 1.0);
      });
}

void read_recipe_part(const std::string& who, const io::Fields& fields, const io::Object& dict) {
  io::ConfigRest rest = io::read_fields(who.c_str(), fields, dict);
  auto& unknown = rest.unknown.items();
  SF_CHECK(unknown.empty(), who, ": has no field '", unknown.empty() ? "" : unknown[0].text(), "'");
}

void check_recipe_object(const std::string& who, const char* name, const io::Object& part) {
  SF_CHECK_AS(TypeError, part.is_dict(), who, ": must have an object '", name, "'");
}

void read_recipe_objects(const std::string& who, const std::vector<std::pair<const char*, io::Object*>>& parts,
                         io::Fields others, const io::Object& file) {
  for (auto& [name, part] : parts) others.push_back({name, part});
  read_recipe_part(who, others, file);
  for (auto& [name, part] : parts) check_recipe_object(who, name, *part);
}

std::unique_ptr<diffusion::Scheduler> recipe_scheduler(const io::Object& config) {
  auto* name = config.find("_class_name");
  SF_CHECK(name && name->is(io::Object::String), "Recipe: scheduler must have a _class_name");
  return diffusion::make_scheduler(name->text(), config);
}

std::string beside_recipe(const std::string& recipe, const std::string& path) {
  if (fs::path(path).is_absolute()) return path;
  return (fs::path(recipe).parent_path() / path).lexically_normal().string();
}

}  // namespace sf::train
