// AutoencoderKLCogVideoX as a part of pipelines.
#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_cogvideox.h"
#include "scaffolding/nn/streaming/widened_weights.h"

namespace sf::diffusion {

namespace {

class VideoAutoencoder final : public ModelComponent<Autoencoder, models::AutoencoderKLCogVideoX> {
 public:
  using ModelComponent::ModelComponent;
  Tensor encode(const Tensor& clips, const Generator& generator) override {
    return model_->encode(clips).sample(generator);
  }
  Tensor decode(const Tensor& latents) override { return model_->decode(latents); }
  std::shared_ptr<void> widened(DType dtype) override { return std::make_shared<nn::WidenedWeights>(*model_, dtype); }
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
