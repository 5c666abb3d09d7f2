#include "scaffolding/train/text_to_video/caption_matcher.h"

#include <cmath>

#include "scaffolding/ops/ops.h"

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

}  // namespace sf::train
