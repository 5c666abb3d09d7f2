#include "scaffolding/diffusion/pipelines/tora/training.h"

#include "scaffolding/diffusion/pipelines/cogvideox/training.h"

namespace sf::diffusion {

TrainedModel trained_tora(const models::ToraTransformer3DModel& model, const Tensor& video_flow,
                          const Tensor& image_latents, const Tensor& image_rotary_emb) {
  return [&model, video_flow, image_latents, image_rotary_emb](const Tensor& noisy, const Tensor& timesteps,
                                                               const Tensor& text) {
    return model(beside_picture(noisy, image_latents), text, timesteps, video_flow, ofs_of(model, noisy),
                 image_rotary_emb ? image_rotary_emb : rotary_positions_of(model, noisy));
  };
}

}  // namespace sf::diffusion
