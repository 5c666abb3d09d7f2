#include "scaffolding/diffusion/pipelines/ltx2/latent_filters.h"

#include "scaffolding/core/error.h"
#include "scaffolding/core/value.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

struct Statistics {
  Tensor mean, std;  // [B, C, 1]
};
Statistics of_channels(const Tensor& latents) {
  const Tensor flat = latents.flatten(2);
  return {flat.mean({2}, true), std(flat, {2}, 1, true)};
}

}  // namespace

Tensor adain_filter_latent(const Tensor& latents, const Tensor& reference, double factor) {
  const char* who = "adain_filter_latent";
  check_defined(who, "latents", latents);
  check_defined(who, "reference_latents", reference);
  SF_CHECK(latents.ndim() >= 3 && reference.ndim() >= 3 && latents.size(0) == reference.size(0) &&
               latents.size(1) == reference.size(1),
           who, ": reference_latents must have the batch and the channels of latents ", latents.shape(), ", got ",
           reference.shape());
  const Statistics own = of_channels(latents), other = of_channels(reference);
  const Tensor filtered = (latents.flatten(2) - own.mean) / own.std * other.std + other.mean;
  return lerp(latents, filtered.reshape(latents.shape()), wrapped(factor));
}

Tensor tone_map_latents(const Tensor& latents, double compression) {
  check_defined("tone_map_latents", "latents", latents);
  SF_CHECK(compression >= 0 && compression <= 1, "tone_map_latents: compression must be from 0 to 1, got ",
           compression);
  const double strength = 0.75 * compression;
  return latents * (1.0 - 0.8 * strength * sigmoid(4.0 * strength * (abs(latents) - 1.0)));
}

}  // namespace sf::diffusion
