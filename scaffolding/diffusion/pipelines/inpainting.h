// What inpainting is in every family of Stable Diffusion: denoisers with 9 input channels see the mask and what is left
// of the picture; with 4 channels the rest of the picture is put back after each step.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::diffusion {

struct InpaintInputs {
  const char* who;
  Tensor image;                 // [n, 3, height, width] in [-1, 1], or latents
  Tensor mask;                  // [n, 1, height, width]: 1 where the picture is made anew, 0 where it stays
  Tensor masked_image_latents;  // instead of those of the picture without the part
  Tensor latents;               // noise instead of drawing
  double strength = 1;
  const Generators& generator;
  int64_t batch, height, width, scale;               // pixels; of a latent
  int64_t channels, latent_channels;                 // that the denoiser takes, and of the autoencoder
  Device device;                                     // of the denoiser
  std::function<Tensor(const Tensor&)> encode = {};  // pictures to latents, which come back as they are
  bool adds_noise = true;                            // false: the picture has the noise that is left in it

  bool sees_mask() const { return channels == 2 * latent_channels + 1; }
  void check() const;  // ValueError for a mask, a picture or a denoiser that does not fit
};

// Of a call's options and the networks that it runs. `batch`: pictures.
template <class O> InpaintInputs inpaint_inputs(const DiffusionPipeline& pipeline, const O& options, int64_t batch) {
  const auto [height, width] = pipeline.size(options.height, options.width);
  const auto unet = pipeline.the_denoiser();
  return {.who = pipeline.name(),
          .image = options.image,
          .mask = options.mask,
          .masked_image_latents = options.masked_image_latents,
          .latents = options.latents,
          .strength = options.strength,
          .generator = options.generator,
          .batch = batch,
          .height = height,
          .width = width,
          .scale = pipeline.vae_scale_factor(),
          .channels = unet->config_int("in_channels", 4),
          .latent_channels = pipeline.the_autoencoder()->config_int("latent_channels", 4),
          .device = unet->device()};
}

struct Inpainting {
  bool sees_mask = false;             // the denoiser does, among its channels
  Tensor mask, masked_image_latents;  // [B, ..], under guidance [2 B, ..]
  Tensor image_latents, noise;        // [B, C, h, w], where the denoiser does not see the mask

  // The run's latents at the beginning of its schedule, and what is kept here; the prompt was prepared. In diffusers'
  // order of drawing: the picture first, then the noise, then what is left of the picture.
  void begin(Run& run, const InpaintInputs& in, DType dtype);
  void tell(Run& run);  // the denoiser and callbacks, behind all that the run tells them otherwise
  void before_step(Run& run) const;
  void after_step(Run& run) const;
  void keep(const Run& run, const Tensor& places);  // samples of the batch
};

// R: Run, or what a family's runs have besides.
template <class R> struct InpaintRun final : R {
  Inpainting inpainting;
  void prepare_step() override {
    R::prepare_step();
    inpainting.before_step(*this);
  }
  void advance(const Tensor& model_output) override {
    Run::advance(model_output);
    inpainting.after_step(*this);
  }
  void keep_more(const Tensor& places) override {
    R::keep_more(places);
    inpainting.keep(*this, places);
  }
};

}  // namespace sf::diffusion
