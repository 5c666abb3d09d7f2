// What autoencoders of all kinds have in common as parts of pipelines.
#pragma once
#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/nn/streaming/widened_weights.h"

namespace sf::diffusion {

template <class M> class AutoencoderComponent : public ModelComponent<Autoencoder, M> {
 public:
  using ModelComponent<Autoencoder, M>::ModelComponent;
  Tensor encode(const Tensor& pixels, const Generator& generator) override {
    auto latents = this->model_->encode(pixels);
    if constexpr (std::is_same_v<decltype(latents), Tensor>) return latents;
    else return latents.sample(generator);
  }
  Tensor encode_mode(const Tensor& pixels) override {
    auto latents = this->model_->encode(pixels);
    if constexpr (std::is_same_v<decltype(latents), Tensor>) return latents;
    else return latents.mode();
  }
  Tensor decode(const Tensor& latents) override { return this->model_->decode(latents); }
  std::shared_ptr<void> widened(DType dtype) override {
    return std::make_shared<nn::WidenedWeights>(*this->model_, dtype);
  }
};

}  // namespace sf::diffusion
