#include "scaffolding/diffusion/guidance.h"

#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

Tensor rescale_noise_cfg(const Tensor& noise_pred, const Tensor& noise_pred_text, double guidance_rescale) {
  constexpr const char* kOp = "rescale_noise_cfg";
  check_defined(kOp, "noise_pred", noise_pred);
  check_defined(kOp, "noise_pred_text", noise_pred_text);
  SF_CHECK(noise_pred.ndim() > 1 && noise_pred_text.shape() == noise_pred.shape(), kOp,
           ": noise_pred and noise_pred_text must have one shape [B, ...], got ", noise_pred.shape(), " and ",
           noise_pred_text.shape());
  SF_CHECK(std::isfinite(guidance_rescale), kOp, ": guidance_rescale must be finite, got ", guidance_rescale);
  Shape dims;
  for (int64_t i = 1; i < noise_pred.ndim(); ++i) dims.push_back(i);
  Tensor rescaled = noise_pred * (std(noise_pred_text, dims, 1, true) / std(noise_pred, dims, 1, true));
  return rescaled * guidance_rescale + noise_pred * (1 - guidance_rescale);
}

Tensor classifier_free_guidance(const DenoisingModel& model, const Tensor& latents, const Tensor& timesteps,
                                const Tensor& prompt_embeds, const Tensor& negative_prompt_embeds,
                                double guidance_scale) {
  constexpr const char* kOp = "classifier_free_guidance";
  for (auto [name, t] : {std::pair{"latents", &latents},
                         {"timesteps", &timesteps},
                         {"prompt_embeds", &prompt_embeds},
                         {"negative_prompt_embeds", &negative_prompt_embeds}})
    check_defined(kOp, name, *t);
  SF_CHECK(std::isfinite(guidance_scale), kOp, ": guidance_scale must be finite, got ", guidance_scale);
  SF_CHECK(prompt_embeds.shape() == negative_prompt_embeds.shape(), kOp,
           ": prompt_embeds and negative_prompt_embeds must have one shape, got ", prompt_embeds.shape(), " and ",
           negative_prompt_embeds.shape());
  SF_CHECK(latents.ndim() > 0 && prompt_embeds.ndim() > 0 && latents.size(0) == prompt_embeds.size(0), kOp,
           ": latents and prompt_embeds must have one batch size, got ", latents.shape(), " and ",
           prompt_embeds.shape());
  Tensor t = timesteps.ndim() == 0 ? timesteps : cat({timesteps, timesteps}, 0);
  Tensor both = model(cat({latents, latents}, 0), t, cat({negative_prompt_embeds, prompt_embeds}, 0));
  SF_CHECK(both && both.ndim() > 0 && both.size(0) == 2 * latents.size(0), kOp, ": the model must return a batch of ",
           2 * latents.size(0), ", got ", both ? both.shape() : Shape());
  Tensors halves = both.chunk(2, 0);
  return halves[0] + guidance_scale * (halves[1] - halves[0]);
}

}  // namespace sf::diffusion
