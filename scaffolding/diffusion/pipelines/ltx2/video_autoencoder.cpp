// AutoencoderKLLTX2Video as a part of pipelines.
#include <algorithm>

#include "scaffolding/diffusion/pipelines/components/autoencoder_component.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_ltx2_video.h"

namespace sf::diffusion {

namespace {

class LTX2VideoAutoencoder final : public AutoencoderComponent<models::AutoencoderKLLTX2Video> {
 public:
  using AutoencoderComponent::AutoencoderComponent;
  int64_t scale_factor() override { return model_->spatial_compression_ratio; }
  int64_t frames_per_latent() override { return model_->temporal_compression_ratio; }
  LatentRange latent_range() override { return {model_->latents_mean, model_->latents_std}; }
  void tell_timestep(const Tensor& timestep) override { timestep_ = timestep; }
  Tensor decode(const Tensor& latents) override { return model_->decode(latents, std::exchange(timestep_, {})); }
  void decode_in_parts(const Tensor& latents, const models::TakeVideoPart& take) override {
    model_->decode_in_parts(latents, take, std::exchange(timestep_, {}));
  }
  Savings savings() override {
    return {model_->use_slicing, model_->use_tiling,
            std::max(model_->tile_sample_min_height, model_->tile_sample_min_width)};
  }
  // Smaller tiles overlap as larger ones do, or by half.
  void save(Savings s) override {
    models::AutoencoderKLLTX2Video& m = *model_;
    m.use_slicing = s.slicing, m.use_tiling = s.tiling;
    if (!s.tile || s.tile >= savings().tile) return;
    const int64_t ratio = m.spatial_compression_ratio, tile = std::max(s.tile / ratio, int64_t(2)) * ratio;
    auto shrink = [&](int64_t& size, int64_t& stride) {
      if (tile >= size) return;
      stride = std::max(tile - (size - stride), (tile / ratio + 1) / 2 * ratio);
      size = tile;
    };
    shrink(m.tile_sample_min_height, m.tile_sample_stride_height);
    shrink(m.tile_sample_min_width, m.tile_sample_stride_width);
  }

 private:
  Tensor timestep_;
};
SF_COMPONENT(Autoencoder, models::AutoencoderKLLTX2Video, LTX2VideoAutoencoder);

}  // namespace

}  // namespace sf::diffusion
