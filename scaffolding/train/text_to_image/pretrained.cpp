#include "scaffolding/train/text_to_image/pretrained.h"

#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/tokenizers/clip_tokenizer.h"

namespace sf::train {

void take_pretrained(const TextToImageRun& run, const std::string& pipeline) {
  namespace fs = std::filesystem;
  const fs::path from(pipeline);
  std::error_code error;
  for (const char* part : {"tokenizer", "vae", "text_encoder", "unet"})
    SF_CHECK(fs::is_directory(from / part, error), "train: --pretrained ", pipeline, " has no folder '", part,
             "'; it must be a pipeline in diffusers' layout");
  if (!run.done("pipeline/tokenizer/vocab.json"))
    tokenizers::CLIPTokenizer::from_pretrained((from / "tokenizer").string())
        .save_pretrained(run.place("pipeline/tokenizer"));
  auto take = [&](const char* part, const std::string& to) {
    if (run.done(to + "/config.json")) return;
    models::LoadModelOptions options;
    options.dtype = kFloat32;
    models::save_model(*models::load_model((from / part).string(), options), run.place(to));
  };
  take("vae", "pipeline/vae");
  take("text_encoder", "pretrained/text_encoder");
  take("unet", "pretrained/unet");
  run.tell("starts from " + pipeline);
}

void load_pretrained(const TextToImageRun& run, const std::string& part, nn::Module& model) {
  if (!run.done("pretrained/" + part + "/config.json")) return;
  auto start = models::load_model(run.place("pretrained/" + part));
  auto weights = nn::state_dict(*start);
  nn::load_state_dict(model, {weights.begin(), weights.end()});
}

}  // namespace sf::train
