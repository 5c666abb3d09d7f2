// AutoencoderKLLTX2Audio as a part of pipelines: of spectrograms, not of pictures.
#include "scaffolding/diffusion/pipelines/components/autoencoder_component.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_ltx2_audio.h"

namespace sf::diffusion {

namespace {

class LTX2AudioAutoencoder final : public AutoencoderComponent<models::AutoencoderKLLTX2Audio> {
 public:
  using AutoencoderComponent::AutoencoderComponent;
  int64_t scale_factor() override { return model_->mel_compression_ratio; }
  int64_t frames_per_latent() override { return model_->temporal_compression_ratio; }
  LatentRange latent_range() override { return {model_->latents_mean, model_->latents_std}; }
};
SF_COMPONENT(Autoencoder, models::AutoencoderKLLTX2Audio, LTX2AudioAutoencoder);

}  // namespace

}  // namespace sf::diffusion
