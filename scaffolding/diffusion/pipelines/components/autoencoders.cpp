// AutoencoderKL and AutoencoderTiny as parts of pipelines.
#include "scaffolding/backend/accelerator.h"
#include "scaffolding/diffusion/pipelines/components.h"
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
  MemoryStatistics m = accelerator(latents.device()).memory(latents.device().index);
  // What is kept and not in use is given back when it is needed,
  // but for the graphs' own and for what lies beside tensors.
  const size_t kept = m.reserved - m.allocated,
               available = m.free + kept - std::min(kept, m.in_graph_pools + m.split_free);
  auto fits = [&] {
    return size_t(vae.decode_bytes(latents.shape(), latents.dtype(), vae.use_slicing, vae.use_tiling)) <= available;
  };
  if (!fits()) vae.use_slicing = true;
  if (!fits()) vae.use_tiling = true;
  return vae.decode(latents);
}

template <class M> class NativeAutoencoder final : public ModelComponent<Autoencoder, M> {
 public:
  using ModelComponent<Autoencoder, M>::ModelComponent;
  Tensor encode(const Tensor& images, const Generator& generator) override {
    auto latents = this->model_->encode(images);
    if constexpr (std::is_same_v<decltype(latents), Tensor>) return latents;
    else return latents.sample(generator);
  }
  Tensor decode(const Tensor& latents) override {
    if constexpr (std::is_same_v<M, models::AutoencoderKL>) return decode_within_memory(*this->model_, latents);
    else return this->model_->decode(latents);
  }
  void to(DType dtype) override { nn::to(*this->model_, {.dtype = dtype}); }
};

SF_COMPONENT(Autoencoder, models::AutoencoderKL, NativeAutoencoder<models::AutoencoderKL>);
SF_COMPONENT(Autoencoder, models::AutoencoderTiny, NativeAutoencoder<models::AutoencoderTiny>);

}  // namespace

}  // namespace sf::diffusion
