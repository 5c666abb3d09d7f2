#include "scaffolding/diffusion/pipelines/cogvideox/training.h"

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/cogvideox/positions.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {
constexpr double kOfs = 2;  // as it was trained, and as diffusers' pipeline has it
}

Tensor rotary_positions_of(const models::CogVideoXTransformer3DModel& model, const Tensor& latents) {
  const auto& c = model.options;
  if (!c.use_rotary_positional_embeddings) return {};
  SF_CHECK(latents.ndim() == 5, "rotary_positions_of: latents must be [B, T, C, h, w], got ", latents.shape());
  return cogvideox_positions({.patch_size = c.patch_size,
                              .patch_size_t = c.patch_size_t.value_or(0),
                              .sample_height = c.sample_height,
                              .sample_width = c.sample_width,
                              .attention_head_dim = c.attention_head_dim},
                             latents.size(1), latents.size(3), latents.size(4), latents.device());
}

Tensor beside_picture(const Tensor& noisy, const Tensor& image) {
  if (!image) return noisy;
  SF_CHECK(noisy.ndim() == 5, "beside_picture: noisy_latents must be [B, T, C, h, w], got ", noisy.shape());
  Shape wanted = noisy.shape();
  wanted[1] = 1;
  check_shape("beside_picture", "image_latents", image, wanted);
  wanted[1] = noisy.size(1) - 1;
  Tensor whole = image.to(noisy.dtype());
  if (wanted[1] > 0) whole = cat({whole, zeros(wanted, noisy.dtype(), noisy.device())}, 1);
  return cat({noisy, whole}, 2);
}

Tensor ofs_of(const models::CogVideoXTransformer3DModel& model, const Tensor& latents) {
  return model.options.ofs_embed_dim ? full({1}, kOfs, latents.dtype(), latents.device()) : Tensor();
}

TrainedModel trained_cogvideox(const models::CogVideoXTransformer3DModel& model, const Tensor& image_latents,
                               const Tensor& image_rotary_emb) {
  return [&model, image_latents, image_rotary_emb](const Tensor& noisy, const Tensor& timesteps, const Tensor& text) {
    return model(beside_picture(noisy, image_latents), text, timesteps, ofs_of(model, noisy),
                 image_rotary_emb ? image_rotary_emb : rotary_positions_of(model, noisy));
  };
}

}  // namespace sf::diffusion
