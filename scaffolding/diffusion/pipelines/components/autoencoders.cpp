// AutoencoderKL and AutoencoderTiny as parts of pipelines.
#include <algorithm>

#include "scaffolding/backend/free_memory.h"
#include "scaffolding/diffusion/pipelines/components/autoencoder_component.h"
#include "scaffolding/models/autoencoders/autoencoder_kl.h"
#include "scaffolding/models/autoencoders/autoencoder_tiny.h"

namespace sf::diffusion {

namespace {

// One picture at a time, and then in tiles, where the GPU's free memory is short.
Tensor decode_within_memory(models::AutoencoderKL& vae, const Tensor& latents) {
  if (!latents.device().is_cuda()) return vae.decode(latents);
  struct Before {
    models::AutoencoderKL& vae;
    bool slicing = vae.use_slicing, tiling = vae.use_tiling;
    ~Before() { vae.use_slicing = slicing, vae.use_tiling = tiling; }
  } before{vae};
  const size_t available = free_device_memory(latents.device());
  auto fits = [&] {
    return size_t(vae.decode_bytes(latents.shape(), latents.dtype(), vae.use_slicing, vae.use_tiling)) <= available;
  };
  if (!fits()) vae.use_slicing = true;
  if (!fits()) vae.use_tiling = true;
  return vae.decode(latents);
}

template <class M> class NativeAutoencoder final : public AutoencoderComponent<M> {
 public:
  using AutoencoderComponent<M>::AutoencoderComponent;
  Tensor decode(const Tensor& latents) override {
    if constexpr (std::is_same_v<M, models::AutoencoderKL>) return decode_within_memory(*this->model_, latents);
    else return this->model_->decode(latents);
  }
  Autoencoder::Savings savings() override {
    return {this->model_->use_slicing, this->model_->use_tiling, this->model_->tile_sample_min_size};
  }
  void save(Autoencoder::Savings s) override {
    M& m = *this->model_;
    m.use_slicing = s.slicing, m.use_tiling = s.tiling;
    if (!s.tile || s.tile >= m.tile_sample_min_size) return;
    m.tile_latent_min_size = std::max<int64_t>(1, m.tile_latent_min_size * s.tile / m.tile_sample_min_size);
    m.tile_sample_min_size = s.tile;
  }
};

SF_COMPONENT(Autoencoder, models::AutoencoderKL, NativeAutoencoder<models::AutoencoderKL>);
SF_COMPONENT(Autoencoder, models::AutoencoderTiny, NativeAutoencoder<models::AutoencoderTiny>);

}  // namespace

}  // namespace sf::diffusion
