// Classifier-free guidance: Ho and Salimans 2022, arXiv 2207.12598.
#pragma once
#include <functional>

#include "scaffolding/core/tensor.h"

namespace sf::diffusion {

// noise_pred with the standard deviation of noise_pred_text (Lin et al. 2023, arXiv 2305.08891, section 3.4), by the
// share guidance_rescale; per sample of [B, ...].
Tensor rescale_noise_cfg(const Tensor& noise_pred, const Tensor& noise_pred_text, double guidance_rescale = 0.7);

using DenoisingModel =
    std::function<Tensor(const Tensor& latents, const Tensor& timesteps, const Tensor& prompt_embeds)>;
// negative + guidance_scale * (prompt - negative), of one call of the model with both halves as one batch of 2 B.
// timesteps: a 0-d tensor, or [B].
Tensor classifier_free_guidance(const DenoisingModel& model, const Tensor& latents, const Tensor& timesteps,
                                const Tensor& prompt_embeds, const Tensor& negative_prompt_embeds,
                                double guidance_scale);

}  // namespace sf::diffusion
