#include "scaffolding/diffusion/pipelines/clip_frames.h"

#include <utility>

#include "scaffolding/diffusion/pipelines/image_processor.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Tensor in_unit_range(Tensor values) {
  values = values * 0.5;
  values.add_(0.5);  // in place: a clip of 49 frames of 480 x 720 has 200 MB
  values = clamp(values, 0, 1);
  return values.to(kFloat32);
}

namespace {

// An autoencoder of which nothing is kept: what it decodes is taken part by part, and decode() gives an undefined
// tensor.
class TakenInParts final : public Autoencoder {
 public:
  TakenInParts(Ref<Autoencoder> real, const models::TakeVideoPart& take) : real_(std::move(real)), take_(take) {}
  io::Object config() override { return real_->config(); }
  DType dtype() override { return real_->dtype(); }
  Device device() override { return real_->device(); }
  models::Model* model() override { return real_->model(); }
  Tensor encode(const Tensor& images, const Generator& generator) override { return real_->encode(images, generator); }
  void tell_timestep(const Tensor& timestep) override { real_->tell_timestep(timestep); }
  int64_t scale_factor() override { return real_->scale_factor(); }
  int64_t frames_per_latent() override { return real_->frames_per_latent(); }
  LatentRange latent_range() override { return real_->latent_range(); }
  Tensor decode(const Tensor& latents) override {
    real_->decode_in_parts(latents, take_);
    return {};
  }
  std::shared_ptr<void> widened(DType dtype) override { return real_->widened(dtype); }

 private:
  Ref<Autoencoder> real_;
  const models::TakeVideoPart& take_;
};

}  // namespace

void decode_in_parts(const DiffusionPipeline& pipeline, const Tensor& latents, const models::TakeVideoPart& take) {
  const auto taken = pipeline.clone();
  for (auto& slot : taken->components())
    if (auto* vae = slot.as<Ref<Autoencoder>>(); vae && *vae) *vae = std::make_shared<TakenInParts>(*vae, take);
  const Tensor values = taken->decoded(latents);
  if (!taken->the_autoencoder()) take({.values = values});
}

// A frame at a time: what lies between values and bytes is as large as one.
void ClipFrames::take(const models::VideoPart& part) {
  const auto& [values, sample, frame, done] = part;
  const auto samples = size_t(sample + values.size(0)), frames = size_t(frame + values.size(2));
  if (rows_.size() < samples) rows_.resize(samples);
  for (int64_t b = 0; b < values.size(0); ++b) {
    std::vector<Tensors>& clip = rows_[size_t(sample + b)];
    if (clip.size() < frames) clip.resize(frames);
    for (int64_t t = 0; t < values.size(2); ++t) {
      const Tensor picture = in_unit_range(values.narrow(0, b, 1).select(2, t));
      clip[size_t(frame + t)].push_back(VaeImageProcessor::frames(picture).select(0, 0));
    }
  }
}

std::vector<Tensors> ClipFrames::joined() {
  std::vector<Tensors> clips;
  for (auto& clip : std::exchange(rows_, {})) {
    Tensors& frames = clips.emplace_back();
    for (Tensors& rows : clip) {
      const Tensors parts = std::exchange(rows, {});
      frames.push_back(parts.size() == 1 ? parts[0] : cat(parts, 0));
    }
  }
  return clips;
}

}  // namespace sf::diffusion
