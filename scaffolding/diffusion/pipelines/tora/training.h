// Tora's transformer in training, as CogVideoX's (cogvideox/training.h), told where things go. Its authors train what
// set_trainable("tora") leaves alone: first with dense flow, then with trajectories.
#pragma once
#include "scaffolding/diffusion/training.h"
#include "scaffolding/models/transformers/tora_transformer_3d.h"

namespace sf::diffusion {

// video_flow: latents [B or 1, T, C, h, w] of the flow's clip (video_flow(), video_of_flow()) times scaling_factor;
// undefined: the model learns clips that nothing steers. The others are trained_cogvideox's.
TrainedModel trained_tora(const models::ToraTransformer3DModel& model, const Tensor& video_flow,
                          const Tensor& image_latents = {}, const Tensor& image_rotary_emb = {});

}  // namespace sf::diffusion
