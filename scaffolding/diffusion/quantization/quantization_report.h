// What quantising a pipeline's denoiser costs: bytes and errors of each layer, of its predictions in each step, and of
// the picture; and rules that fit a number of bytes.
#pragma once
#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/nn/quantize.h"

namespace sf::diffusion {

struct ReportedLayer {
  std::string name, type, wanted, format;  // wanted: by the rules; format: what it got
  int64_t numbers = 0, dense_bytes = 0, bytes = 0;
  // Norms of differences over the full one's: of the weight, and of its output on activations of the run; the latter
  // is absent of a layer that no activation reached.
  double weight_error = 0;
  std::optional<double> output_error;
};
struct QuantizationReport {
  std::string model;  // the denoiser's class
  std::vector<ReportedLayer> layers;
  int64_t dense_bytes = 0, bytes = 0;  // of the whole denoiser
  // Of each call of the denoiser in the full run: the quantised one's on the same input, a norm of the difference over
  // the full one's.
  std::vector<double> prediction_errors;
  double picture_error = 0, psnr = 0;  // mean of |difference| of the pictures in [0, 1]; decibels
};

// full and other: the same pipeline, loaded twice; other's denoiser is quantised. call: what both are called with,
// made anew for each, with generators of the same seeds. NotSupported where the denoiser is no C++ model.
QuantizationReport report_quantization(DiffusionPipeline& full, DiffusionPipeline& other, const std::string& format,
                                       const nn::QuantizeOptions& options, const std::function<AnyOptions()>& call);

// Formats of GGUF for a model's layers, so that all its bytes are no more than so many, with little error: from layers
// as they are, the one that loses least for a byte is made narrower again and again. A rule for each layer.
// options.rules: which layers stay wide. ValueError where the narrowest format is too wide.
std::vector<nn::QuantizeRule> rules_for_budget(nn::Module& model, int64_t bytes,
                                               const nn::QuantizeOptions& options = {});

}  // namespace sf::diffusion
