// AutoencoderKLCogVideoX as a part of pipelines.
#include "scaffolding/diffusion/pipelines/components/autoencoder_component.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_cogvideox.h"

namespace sf::diffusion {

namespace {

class VideoAutoencoder final : public AutoencoderComponent<models::AutoencoderKLCogVideoX> {
 public:
  using AutoencoderComponent::AutoencoderComponent;
  void decode_in_parts(const Tensor& latents, const models::TakeVideoPart& take) override {
    model_->decode_in_parts(latents, take);
  }
  Savings savings() override {
    return {model_->use_slicing, model_->use_tiling,
            std::max(model_->tile_sample_min_height, model_->tile_sample_min_width)};
  }
  void save(Savings s) override {
    model_->use_slicing = s.slicing, model_->use_tiling = s.tiling;
    if (s.tile && s.tile < savings().tile)
      model_->set_tile(std::min(s.tile, model_->tile_sample_min_height),
                       std::min(s.tile, model_->tile_sample_min_width));
  }
};
SF_COMPONENT(Autoencoder, models::AutoencoderKLCogVideoX, VideoAutoencoder);

}  // namespace

}  // namespace sf::diffusion
