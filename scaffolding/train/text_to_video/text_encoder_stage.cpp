// The stage before the denoiser's: a text encoder that already knows what its captions mean, which takes a small part
// of the time that the denoiser's loss would need: it draws icons, or tells clips of a folder by their captions.
#include "scaffolding/models/model_files.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/tokenizers/pretrained.h"
#include "scaffolding/train/pretrained.h"
#include "scaffolding/train/stage_training.h"
#include "scaffolding/train/text_to_video/cached_clips.h"
#include "scaffolding/train/text_to_video/caption_drawer.h"
#include "scaffolding/train/text_to_video/caption_matcher.h"
#include "scaffolding/train/text_to_video/model.h"

namespace sf::train {

namespace {

using TextEncoder = std::shared_ptr<models::T5EncoderModel>;

const char* const kStage = "text_encoder";

bool learn_to_draw(const TextToVideoRun& run, const tokenizers::Tokenizer& tokenizer, const TextEncoder& text_encoder,
                   uint64_t seed) {
  CaptionDrawer model(text_encoder);
  run.move(model);
  StageTraining stage(run, run.recipe.text_encoder_training, kStage, seed, model,
                      std::make_shared<DrawnIcons>(run.clips));
  return stage.train(
      [&](data::Batch& batch) {
        return Tensors{caption_ids(tokenizer, batch.caption), batch.image, batch.target};
      },
      [&](const Tensors& in) { return model(in[0], in[1], in[2]); });
}

bool learn_to_match(const TextToVideoRun& run, const TextEncoder& text_encoder, uint64_t seed) {
  auto clips = std::make_shared<CachedClips>(run);
  CaptionMatcher model(text_encoder, clips->clip(0).size(1));
  run.move(model);
  StageTraining stage(run, run.recipe.text_encoder_training, kStage, seed, model, clips);
  return stage.train(
      [&](data::Batch& batch) {
        return Tensors{clips->ids(batch.index), batch.image};
      },
      [&](const Tensors& in) { return model(in[0], in[1]); });
}

}  // namespace

bool train_text_encoder(const TextToVideoRun& run) {
  if (run.done("pipeline/text_encoder/config.json")) return true;
  const uint64_t seed = uint64_t(run.recipe.seed) + 2;
  const std::string folder = run.place("pipeline/tokenizer");
  auto tokenizer = tokenizers::load_tokenizer(tokenizers::tokenizer_class_of(folder), folder);
  manual_seed(seed);
  auto text_encoder = std::make_shared<models::T5EncoderModel>(text_encoder_config(run.recipe, *tokenizer));
  load_pretrained(run, "text_encoder", *text_encoder);
  if (run.recipe.text_encoder_training.max_steps != 0 &&
      !(run.clips->icons() ? learn_to_draw(run, *tokenizer, text_encoder, seed)
                           : learn_to_match(run, text_encoder, seed)))
    return false;
  nn::to(*text_encoder, {.device = Device::CPU});
  models::save_model(*text_encoder, run.place("pipeline/text_encoder"));
  return true;
}

}  // namespace sf::train
