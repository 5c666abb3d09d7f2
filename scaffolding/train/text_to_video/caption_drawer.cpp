#include "scaffolding/train/text_to_video/caption_drawer.h"

#include "scaffolding/core/error.h"
#include "scaffolding/data/resize.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

namespace {

constexpr int64_t kSide = DrawnIcons::kSide, kChannels = 4, kPicture = kChannels * kSide * kSide,
                  kPatch = kSide / CaptionDrawer::kPatches;

Tensor drawn(const data::MovingIcons& clips, int64_t index) {
  const Tensor levels = data::resize(clips.icons().drawing(index), kSide, kSide, data::Filter::Lanczos).to(kFloat32);
  const Tensor colours = levels.narrow(0, 0, 3) * (1 / 127.5) - 1, opacity = levels.narrow(0, 3, 1) * (1 / 255.0);
  return cat({colours * opacity, opacity * 2 - 1}, 0);
}

}  // namespace

DrawnIcons::DrawnIcons(std::shared_ptr<const TrainingClips> clips) : clips_(std::move(clips)) {
  SF_CHECK(clips_->icons(), "DrawnIcons: needs clips of icons, got those of ", clips_->data().path);
  for (int64_t i = 0; i < size(); ++i) drawings_.push_back(drawn(*clips_->icons(), i));
}

data::Sample DrawnIcons::get(int64_t index, data::SampleRandom& random) const {
  const data::MovingIcons& clips = *clips_->icons();
  const data::IconGround ground = clips.ground(random);
  data::Sample sample;
  sample.image = drawings_[size_t(index)];
  sample.target = empty({6}, kFloat32, Device::CPU);
  auto* to = sample.target.data<float>();
  for (const auto& colour : {ground.top, ground.bottom})
    for (uint8_t level : colour) *to++ = float(level) / 127.5f - 1;
  sample.caption = clips.icons().prompt(index, ground.name, random);
  sample.name = sample_name(index);
  sample.index = index;
  return sample;
}

CaptionDrawer::CaptionDrawer(std::shared_ptr<models::T5EncoderModel> text)
    : text_encoder(std::move(text)),
      patches(text_encoder->options.d_model, kChannels * kPatch * kPatch),
      whole_hidden(text_encoder->options.d_model, 2 * text_encoder->options.d_model),
      whole(2 * text_encoder->options.d_model, kPicture + 6) {}

CaptionDrawer::Drawing CaptionDrawer::draw(const Tensor& ids) const {
  SF_CHECK(ids.ndim() == 2 && ids.size(1) >= kTokens, "CaptionDrawer: ids must be [B, M] of ", kTokens,
           " tokens or more, got ", ids.shape());
  const int64_t batch = ids.size(0);
  const Tensor states = (*text_encoder)(ids)[0];
  const Tensor each = patches(states.narrow(1, 0, kTokens))
                          .reshape({batch, kPatches, kPatches, kChannels, kPatch, kPatch})
                          .permute({0, 3, 1, 4, 2, 5});
  const Tensor all = whole(gelu(whole_hidden(mean(states, Shape{1}))));
  const Shape pictures{batch, kChannels, kSide, kSide};
  return {each.reshape(pictures), all.narrow(1, 0, kPicture).reshape(pictures), all.narrow(1, kPicture, 6)};
}

Tensor CaptionDrawer::forward(const Tensor& ids, const Tensor& pictures, const Tensor& grounds) const {
  const Drawing drawing = draw(ids);
  return mean(square(drawing.patches - pictures)) + mean(square(drawing.whole - pictures)) +
         0.5 * mean(square(drawing.grounds - grounds));
}

}  // namespace sf::train
