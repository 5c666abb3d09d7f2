#include "scaffolding/train/pretrained.h"

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/tokenizers/pretrained.h"

namespace sf::train {

void take_pretrained(const RecipeRun& run, const std::string& pipeline, const std::string& denoiser,
                     const AutoencoderRecipe& autoencoder) {
  namespace fs = std::filesystem;
  const fs::path from(pipeline);
  std::error_code error;
  for (const std::string& part : {std::string("tokenizer"), std::string("vae"), std::string("text_encoder"), denoiser})
    SF_CHECK(fs::is_directory(from / part, error), "train: --pretrained ", pipeline, " has no folder '", part,
             "'; it must be a pipeline in diffusers' layout");
  if (!run.done("pipeline/tokenizer/tokenizer_config.json")) {
    const std::string folder = (from / "tokenizer").string();
    tokenizers::load_tokenizer(tokenizers::tokenizer_class_of(folder), folder)
        ->save_pretrained(run.place("pipeline/tokenizer"));
  }
  auto take = [&](const std::string& part, const std::string& to) {
    if (run.done(to + "/config.json")) return;
    models::LoadModelOptions options;
    options.dtype = kFloat32;
    models::save_model(*models::load_model((from / part).string(), options), run.place(to));
  };
  take("vae", autoencoder.train_pretrained ? "pretrained/vae" : "pipeline/vae");
  take("text_encoder", "pretrained/text_encoder");
  take(denoiser, "pretrained/" + denoiser);
  run.tell("starts from " + pipeline);
}

void load_pretrained(const RecipeRun& run, const std::string& part, nn::Module& model,
                     const std::vector<std::string>& may_lack) {
  if (!run.done("pretrained/" + part + "/config.json")) return;
  auto start = models::load_model(run.place("pretrained/" + part));
  auto there = nn::state_dict(*start);
  std::map<std::string, Tensor> weights{there.begin(), there.end()};
  for (auto& [name, t] : nn::state_dict(model))
    if (std::any_of(may_lack.begin(), may_lack.end(), [&](auto& beginning) { return name.starts_with(beginning); }))
      weights.emplace(name, t);
  nn::load_state_dict(model, weights);
}

}  // namespace sf::train
