// What SDXL's pipelines share that begin with a picture: where in the schedule they start, and what the denoiser is
// told of sizes, and of the scores with which the refiner was trained.
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion_xl/conditioning.h"

namespace sf::diffusion {

struct StableDiffusionXLPictureOptions : StableDiffusionXLOptions {
  Tensor image;  // [n, 3, H, W] in [-1, 1], or latents
  double strength = 0.3;
  std::optional<double> denoising_start;  // strength is not looked at where it is inside of 0 and 1
  double aesthetic_score = 6, negative_aesthetic_score = 2.5;  // of models with requires_aesthetics_score
  OptionFields fields();
};

class StableDiffusionXLPictureBase : public StableDiffusionXLBase {
 public:
  bool requires_aesthetics_score = false;  // the refiner's denoiser was told scores
  io::Fields fields() override;

 protected:
  void check_picture(const StableDiffusionXLPictureOptions& o) const;  // and what all runs of SDXL check
  // The schedule without what was run already, by denoising_start or by strength.
  void start_late(Run& run, const StableDiffusionXLPictureOptions& o) const;
  // The latents of a run that begins with a picture: encoded, with noise where the picture has none of its own.
  void begin_with_picture(Run& run, const StableDiffusionXLPictureOptions& o, DType dtype) const;
  // Once the run has its latents: the rest of what it tells the denoiser.
  void tell_picture(Run& run, const StableDiffusionXLPictureOptions& o, const StableDiffusionXLEmbeds& embeds) const;
  Tensor encode_wide(const Tensor& images, const Generators& generator, DType dtype) const;  // float32 where it must be
};

}  // namespace sf::diffusion
