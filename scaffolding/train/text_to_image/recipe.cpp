#include "scaffolding/train/text_to_image/recipe.h"

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/io/object_entries.h"

namespace sf::train {

namespace fs = std::filesystem;
using io::Object;

io::Fields StageRecipe::fields() {
  return {{"max_steps", &max_steps},
          {"batch_size", &batch_size},
          {"learning_rate", &learning_rate},
          {"weight_decay", &weight_decay},
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
  all.insert(all.end(), {{"kl_weight", &kl_weight}, {"edge_weight", &edge_weight}});
  return all;
}

io::Fields DenoiserRecipe::fields() {
  io::Fields all = StageRecipe::fields();
  all.insert(all.end(), {{"text_learning_rate", &text_learning_rate},
                         {"caption_dropout", &caption_dropout},
                         {"snr_gamma", &snr_gamma},
                         {"late_timesteps", &late_timesteps},
                         {"backgrounds", &backgrounds},
                         {"sample_steps", &sample_steps},
                         {"guidance_scale", &guidance_scale},
                         {"sample_prompts", &sample_prompts}});
  return all;
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

namespace {

// Reads a part of the recipe and refuses what names no field.
void read_part(const std::string& who, const io::Fields& fields, const Object& dict) {
  io::ConfigRest rest = io::read_fields(who.c_str(), fields, dict);
  auto& unknown = rest.unknown.items();
  SF_CHECK(unknown.empty(), who, ": has no field '", unknown.empty() ? "" : unknown[0].text(), "'");
}

void check_stage(const std::string& who, const StageRecipe& s) {
  SF_CHECK(s.batch_size > 0, who, ": batch_size must be above 0, got ", s.batch_size);
  SF_CHECK(s.learning_rate > 0, who, ": learning_rate must be above 0, got ", s.learning_rate);
  SF_CHECK(s.warmup_steps >= 0, who, ": warmup_steps must not be negative, got ", s.warmup_steps);
  SF_CHECK(!s.decay_steps || (*s.decay_steps >= 0 && s.warmup_steps + *s.decay_steps <= s.max_steps), who,
           ": decay_steps must be 0 to max_steps - warmup_steps, ", s.max_steps - s.warmup_steps, ", got ",
           s.decay_steps.value_or(0));
  SF_CHECK(s.ema_decay >= 0 && s.ema_decay < 1, who, ": ema_decay must be in [0, 1), got ", s.ema_decay);
  SF_CHECK(s.num_workers >= 0, who, ": num_workers must not be negative, got ", s.num_workers);
  s.run("").check({});
}

Object ints(std::initializer_list<int64_t> values) {
  std::vector<Object> items(values.begin(), values.end());
  return Object::container(Object::List, std::move(items));
}

}  // namespace

Recipe Recipe::read(const std::string& path) {
  Object file = io::read_config_file(path);
  Recipe r;
  Object data, tokenizer, autoencoder, text_encoder_training, denoiser;
  read_part(path,
            {{"seed", &r.seed},
             {"data", &data},
             {"tokenizer", &tokenizer},
             {"vae", &r.vae},
             {"text_encoder", &r.text_encoder},
             {"unet", &r.unet},
             {"scheduler", &r.scheduler},
             {"autoencoder_training", &autoencoder},
             {"text_encoder_training", &text_encoder_training},
             {"denoiser_training", &denoiser}},
            file);
  for (auto& [name, part] :
       std::initializer_list<std::pair<const char*, const Object&>>{{"data", data},
                                                                    {"tokenizer", tokenizer},
                                                                    {"vae", r.vae},
                                                                    {"text_encoder", r.text_encoder},
                                                                    {"unet", r.unet},
                                                                    {"scheduler", r.scheduler},
                                                                    {"autoencoder_training", autoencoder},
                                                                    {"text_encoder_training", text_encoder_training},
                                                                    {"denoiser_training", denoiser}})
    if (!part.is_dict()) fail<TypeError>(path, ": must have an object '", name, "'");
  auto& icons = r.icons;
  read_part(path + ": data",
            {{"path", &r.data},
             {"splits", &icons.splits},
             {"left_out_groups", &icons.left_out_groups},
             {"size", &icons.size},
             {"background_probability", &icons.background_probability},
             {"keyword_probability", &icons.keyword_probability},
             {"style_dropout", &icons.style_dropout}},
            data);
  read_part(path + ": tokenizer", {{"vocab_size", &r.vocab_size}, {"max_tokens", &r.max_tokens}}, tokenizer);
  read_part(path + ": autoencoder_training", r.autoencoder.fields(), autoencoder);
  read_part(path + ": text_encoder_training", r.text_encoder_training.fields(), text_encoder_training);
  read_part(path + ": denoiser_training", r.denoiser.fields(), denoiser);
  check_stage(path + ": autoencoder_training", r.autoencoder);
  if (r.text_encoder_training.max_steps != 0) check_stage(path + ": text_encoder_training", r.text_encoder_training);
  check_stage(path + ": denoiser_training", r.denoiser);
  SF_CHECK(r.denoiser.text_learning_rate >= 0, path, ": text_learning_rate must not be negative, got ",
           r.denoiser.text_learning_rate);
  SF_CHECK(r.denoiser.caption_dropout >= 0 && r.denoiser.caption_dropout <= 1, path,
           ": caption_dropout must be 0 to 1, got ", r.denoiser.caption_dropout);
  SF_CHECK(r.denoiser.late_timesteps > 0, path, ": late_timesteps must be above 0, got ", r.denoiser.late_timesteps);
  SF_CHECK(r.max_tokens > 2, path, ": max_tokens must be above 2, got ", r.max_tokens);
  SF_CHECK(r.denoiser.backgrounds >= 0, path, ": backgrounds must not be negative, got ", r.denoiser.backgrounds);
  if (!fs::path(r.data).is_absolute()) r.data = (fs::path(path).parent_path() / r.data).lexically_normal().string();
  return r;
}

std::unique_ptr<diffusion::Scheduler> Recipe::make_scheduler() const {
  auto* name = scheduler.find("_class_name");
  SF_CHECK(name && name->is(Object::String), "Recipe: scheduler must have a _class_name");
  return diffusion::make_scheduler(name->text(), scheduler);
}

void Recipe::make_smoke() {
  vocab_size = 700;
  io::set_entry(vae, "block_out_channels", ints({8, 8, 8, 8}));
  io::set_entry(vae, "norm_num_groups", int64_t(4));
  io::set_entry(text_encoder, "hidden_size", int64_t(32));
  io::set_entry(text_encoder, "intermediate_size", int64_t(64));
  io::set_entry(text_encoder, "num_hidden_layers", int64_t(1));
  io::set_entry(text_encoder, "num_attention_heads", int64_t(2));
  io::set_entry(unet, "block_out_channels", ints({16, 32, 32}));
  io::set_entry(unet, "norm_num_groups", int64_t(8));
  io::set_entry(unet, "attention_head_dim", int64_t(2));
  io::set_entry(unet, "cross_attention_dim", int64_t(32));
  for (StageRecipe* stage : std::initializer_list<StageRecipe*>{&autoencoder, &text_encoder_training, &denoiser}) {
    stage->max_steps = 6;
    stage->batch_size = 4;
    stage->warmup_steps = 2;
    stage->decay_steps.reset();
    stage->checkpointing_steps = 3;
    stage->logging_steps = 1;
  }
  denoiser.sample_steps = 3;
  denoiser.backgrounds = 0;
}

}  // namespace sf::train
