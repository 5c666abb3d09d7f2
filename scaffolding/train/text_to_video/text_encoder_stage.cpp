#include "scaffolding/train/text_to_video/text_encoder_stage.h"

#include <cmath>

#include "scaffolding/models/model_files.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/tokenizers/pretrained.h"
#include "scaffolding/train/pretrained.h"
#include "scaffolding/train/stage_training.h"
#include "scaffolding/train/text_to_video/cached_clips.h"
#include "scaffolding/train/text_to_video/model.h"

namespace sf::train {

namespace {

constexpr double kLargestScale = 100;

nn::ConvOptions halving() { return {.stride = nn::Ints(2), .padding = {1}}; }

Tensor of_unit_length(const Tensor& x) { return x / (sqrt(sum(square(x), Shape{1}, true)) + 1e-6); }

}  // namespace

CaptionMatcher::CaptionMatcher(std::shared_ptr<models::T5EncoderModel> text, int64_t latent_channels)
    : text_encoder(std::move(text)),
      text_projection(text_encoder->options.d_model, text_encoder->options.d_model),
      conv1(latent_channels, kWidth, nn::Ints(3), nn::ConvOptions{.padding = {1}}),
      conv2(kWidth, 2 * kWidth, nn::Ints(3), halving()),
      conv3(2 * kWidth, 4 * kWidth, nn::Ints(3), halving()),
      clip_projection(4 * kWidth, text_encoder->options.d_model),
      logit_scale(nn::parameter(full({}, std::log(1 / 0.07)))) {}

Tensor CaptionMatcher::texts(const Tensor& ids) const {
  const Tensor states = (*text_encoder)(ids)[0];
  const Tensor words = ne(ids, wrapped(text_encoder->options.pad_token_id.value_or(0))).to(states.dtype()).unsqueeze(2);
  return of_unit_length(text_projection(sum(states * words, Shape{1}) / sum(words, Shape{1})));
}

Tensor CaptionMatcher::clips(const Tensor& latents) const {
  const int64_t batch = latents.size(0), frames = latents.size(1);
  Tensor x = silu(conv3(silu(conv2(silu(conv1(latents.flatten(0, 1)))))));
  x = mean(x.flatten(2), Shape{2}).reshape({batch, frames, -1});
  return of_unit_length(clip_projection(mean(x, Shape{1})));
}

Tensor CaptionMatcher::forward(const Tensor& ids, const Tensor& latents) const {
  const Tensor scale = exp(clamp(logit_scale, 0, std::log(kLargestScale)));
  const Tensor logits = matmul(texts(ids), clips(latents).transpose(0, 1)) * scale;
  const Tensor equal = all(eq(ids.unsqueeze(0), ids.unsqueeze(1)), Shape{2}).to(kFloat32);  // [B, B], 1 on the diagonal
  const Tensor wanted = equal / sum(equal, Shape{1}, true);
  const auto missed = [&](const Tensor& rows) { return mean(sum(wanted * log_softmax(rows, 1), Shape{1})) * -0.5; };
  return missed(logits) + missed(logits.transpose(0, 1));
}

bool train_text_encoder(const TextToVideoRun& run) {
  if (run.done("pipeline/text_encoder/config.json")) return true;
  const StageRecipe& o = run.recipe.text_encoder_training;
  const uint64_t seed = uint64_t(run.recipe.seed) + 2;
  const std::string folder = run.place("pipeline/tokenizer");
  auto tokenizer = tokenizers::load_tokenizer(tokenizers::tokenizer_class_of(folder), folder);
  auto clips = std::make_shared<CachedClips>(run);
  manual_seed(seed);
  auto text_encoder = std::make_shared<models::T5EncoderModel>(text_encoder_config(run.recipe, *tokenizer));
  load_pretrained(run, "text_encoder", *text_encoder);
  if (o.max_steps == 0) {
    models::save_model(*text_encoder, run.place("pipeline/text_encoder"));
    return true;
  }
  CaptionMatcher model(text_encoder, clips->clip(0).size(1));
  run.move(model);
  StageTraining stage(run, o, "text_encoder", seed, model, clips);
  const bool done = stage.train(
      [&](data::Batch& batch) {
        return Tensors{clips->ids(batch.index), batch.image};
      },
      [&](const Tensors& in) { return model(in[0], in[1]); });
  if (!done) return false;
  nn::to(model, {.device = Device::CPU});
  models::save_model(*text_encoder, run.place("pipeline/text_encoder"));
  return true;
}

}  // namespace sf::train
