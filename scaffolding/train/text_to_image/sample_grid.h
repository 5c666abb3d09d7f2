// Pictures from a model in training: a grid each time, always from the same noise, so that one can see it learn.
#pragma once
#include "scaffolding/diffusion/pipelines/stable_diffusion/pipeline_stable_diffusion.h"
#include "scaffolding/train/text_to_image/denoiser_stage.h"

namespace sf::train {

class SampleGrid {
 public:
  // Takes the autoencoder and the scheduler of the run.
  SampleGrid(const TextToImageRun& run, std::shared_ptr<const tokenizers::CLIPTokenizer> tokenizer);
  void write(TextToImageModel& model, int64_t step) const;  // denoiser/samples/step-001000.png
  void save_pipeline(TextToImageModel& model) const;        // into pipeline/, in float16

 private:
  diffusion::StableDiffusionPipeline pipeline(TextToImageModel& model) const;
  const TextToImageRun& run_;
  diffusion::StableDiffusionPipeline parts_;  // all but the networks that are trained
};

}  // namespace sf::train
