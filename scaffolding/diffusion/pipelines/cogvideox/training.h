// CogVideoX's transformers in training: with diffusion_loss (diffusion/training.h) and a scheduler of v_prediction they
// learn by the loss of diffusers' examples, which weigh the error of the clean latents by 1 / (1 - alphas_cumprod).
//   Tensor loss = diffusion_loss(trained_cogvideox(transformer), scheduler, latents, prompt_embeds);
#pragma once
#include "scaffolding/diffusion/training.h"
#include "scaffolding/models/transformers/cogvideox_transformer_3d.h"

namespace sf::diffusion {

// image_rotary_emb of latents [B, T, C, h, w]; undefined where the transformer adds its positions.
Tensor rotary_positions_of(const models::CogVideoXTransformer3DModel& model, const Tensor& latents);
// Noisy latents [B, T, C, h, w] with what stands beside them in a transformer of image-to-video: image_latents
// [B, 1, C, h, w] of the first frame, times scaling_factor, and zeros for those behind. Undefined: the noisy latents.
// ValueError where the sizes are not theirs.
Tensor beside_picture(const Tensor& noisy_latents, const Tensor& image_latents);
// The second number of image-to-video 1.5, where the transformer takes one; else undefined.
Tensor ofs_of(const models::CogVideoXTransformer3DModel& model, const Tensor& latents);

// What diffusion_loss calls: the transformer with the positions of its tokens. Its condition is the embedded prompts
// [B, M, features]. It keeps a reference to the model. image_rotary_emb: rotary_positions_of() latents of that size, of
// a caller who has them; else they are made in each call.
TrainedModel trained_cogvideox(const models::CogVideoXTransformer3DModel& model, const Tensor& image_latents = {},
                               const Tensor& image_rotary_emb = {});

}  // namespace sf::diffusion
