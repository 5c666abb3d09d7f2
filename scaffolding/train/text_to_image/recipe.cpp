#include "scaffolding/train/text_to_image/recipe.h"

#include "scaffolding/core/error.h"
#include "scaffolding/io/object_entries.h"

namespace sf::train {

using io::Object;

io::Fields IconDenoiserRecipe::fields() {
  io::Fields all = DenoiserRecipe::fields();
  all.push_back({"backgrounds", &backgrounds});
  all.push_back({"noises", &noises});
  return all;
}

namespace {

Object ints(std::initializer_list<int64_t> values) {
  std::vector<Object> items(values.begin(), values.end());
  return Object::container(Object::List, std::move(items));
}

data::CompositionOptions read_composition(const std::string& who, const Object& dict) {
  data::CompositionOptions o;
  read_recipe_part(who,
                   {{"pair_probability", &o.pair_probability},
                    {"count_probability", &o.count_probability},
                    {"recolour_probability", &o.recolour_probability},
                    {"name_colour_probability", &o.name_colour_probability},
                    {"detail_dropout", &o.detail_dropout},
                    {"variation_probability", &o.variation_probability},
                    {"rotation", &o.rotation},
                    {"smallest", &o.smallest},
                    {"hue_jitter", &o.hue_jitter},
                    {"row_freedom", &o.row_freedom},
                    {"mirror_probability", &o.mirror_probability},
                    {"gradient_probability", &o.gradient_probability},
                    {"background_jitter", &o.background_jitter}},
                   dict);
  o.check(who);
  return o;
}

}  // namespace

Recipe Recipe::read(const std::string& path) {
  Object file = io::read_config_file(path);
  Recipe r;
  Object data, tokenizer, autoencoder, text_encoder_training, denoiser;
  read_recipe_objects(path,
                      {{"data", &data},
                       {"tokenizer", &tokenizer},
                       {"vae", &r.vae},
                       {"text_encoder", &r.text_encoder},
                       {"unet", &r.unet},
                       {"scheduler", &r.scheduler},
                       {"autoencoder_training", &autoencoder},
                       {"text_encoder_training", &text_encoder_training},
                       {"denoiser_training", &denoiser}},
                      {{"seed", &r.seed}}, file);
  auto& icons = r.icons;
  Object composition;
  read_recipe_part(path + ": data",
                   {{"path", &r.data},
                    {"splits", &icons.splits},
                    {"left_out_groups", &icons.left_out_groups},
                    {"size", &icons.size},
                    {"background_probability", &icons.background_probability},
                    {"keyword_probability", &icons.keyword_probability},
                    {"style_dropout", &icons.style_dropout},
                    {"composition", &composition}},
                   data);
  if (data.find("composition")) {
    check_recipe_object(path + ": data", "composition", composition);
    r.composition = read_composition(path + ": data: composition", composition);
  }
  read_recipe_part(path + ": tokenizer", {{"vocab_size", &r.vocab_size}, {"max_tokens", &r.max_tokens}}, tokenizer);
  read_recipe_part(path + ": autoencoder_training", r.autoencoder.fields(), autoencoder);
  read_recipe_part(path + ": text_encoder_training", r.text_encoder_training.fields(), text_encoder_training);
  read_recipe_part(path + ": denoiser_training", r.denoiser.fields(), denoiser);
  r.autoencoder.check(path + ": autoencoder_training");
  if (r.text_encoder_training.max_steps != 0) r.text_encoder_training.check(path + ": text_encoder_training");
  r.denoiser.check(path + ": denoiser_training");
  SF_CHECK(r.max_tokens > 2, path, ": max_tokens must be above 2, got ", r.max_tokens);
  SF_CHECK(r.denoiser.noises >= 1, path, ": noises must be at least 1, got ", r.denoiser.noises);
  SF_CHECK(r.denoiser.backgrounds >= 0, path, ": backgrounds must not be negative, got ", r.denoiser.backgrounds);
  r.data = beside_recipe(path, r.data);
  return r;
}

std::unique_ptr<diffusion::Scheduler> Recipe::make_scheduler() const { return recipe_scheduler(scheduler); }

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
  for (StageRecipe* stage : std::initializer_list<StageRecipe*>{&autoencoder, &text_encoder_training, &denoiser})
    stage->make_smoke();
  denoiser.sample_steps = 3;
  denoiser.backgrounds = 0;
}

}  // namespace sf::train
