// Hires: a picture at the size that its model draws best, made larger, and drawn over as image to image by the same
// prompt: larger pictures without doubled things. The two passes are a pipeline's and its family's image-to-image
// one's, and give to the bit what calling them by hand gives:
//   Hires hires(pipe, {.scale = 1.5});
//   PipelineOutput out = hires(AnyOptions::of(options));
#pragma once
#include <functional>

#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

// Latent: the latents, bilinear. Bicubic, Lanczos: the decoded picture.
enum class HiresUpscaler : uint8_t { Latent, Bicubic, Lanczos };
HiresUpscaler hires_upscaler(std::string_view name);  // "latent", "bicubic", "lanczos"; ValueError otherwise
const char* name_of(HiresUpscaler upscaler);

struct HiresOptions {
  double scale = 2;       // of both sides, to 8; sizes are cut to what the autoencoder takes
  double strength = 0.7;  // of the second pass: the share of its steps that is run. The web UI's default
  std::optional<int64_t> num_inference_steps;  // of the second pass, of which that share is run; absent: the first's
  HiresUpscaler upscaler = HiresUpscaler::Latent;
  // In its place: a picture uint8 [3, H, W] to a larger one, of any size, which Lanczos brings to the one asked for.
  std::function<Tensor(const Tensor& picture)> upscale;
};

class Hires {
 public:
  // ValueError for options out of range, and for a family without image to image.
  Hires(const DiffusionPipeline& pipeline, HiresOptions options);

  PipelineOutput operator()(const AnyOptions& options) const;

  // The same in steps: first(), its steps, second(), its steps, finish(). Both draw from the options' generators, one
  // after the other; the second run has all of the options but sizes and latents.
  std::unique_ptr<Run> first(const AnyOptions& options) const;
  std::unique_ptr<Run> second(const AnyOptions& options, Run& first) const;

 private:
  Tensor enlarged(Run& first) const;  // what image to image takes: latents, or [B, 3, H, W] in [-1, 1]
  std::shared_ptr<const DiffusionPipeline> pipeline_, image_to_image_;
  HiresOptions options_;
};

}  // namespace sf::diffusion
