// FluxKontextPipeline: a picture changed as a sentence says, with FLUX.1 Kontext (arXiv 2506.15742), whose denoiser has
// the picture's tokens behind its own.
#pragma once
#include "scaffolding/diffusion/pipelines/flux/flux.h"

namespace sf::diffusion {

struct FluxKontextOptions : FluxOptions {
  Tensor image;                    // [n, 3, H, W] in [-1, 1], best of a trained_size, or latents; absent: text alone
  int64_t max_area = 1024 * 1024;  // pixels of the result, whose height and width say its shape
  OptionFields fields();
};

struct FluxKontextPipeline : PipelineOf<FluxKontextPipeline, FluxKontextOptions, FluxAdapterBase> {
  static constexpr const char* kName = "FluxKontextPipeline";
  std::unique_ptr<Run> prepare(const FluxKontextOptions& options) const;

  // {height, width} that the network was trained on, of the shape nearest to that of height x width.
  static Size trained_size(int64_t height, int64_t width);
  std::optional<Size> picture_size(int64_t height, int64_t width) const override { return trained_size(height, width); }
};

}  // namespace sf::diffusion
