// Clips from a model in training: a picture each time with a row for each prompt, frame beside frame, always from the
// same noise, so that one can see it learn.
#pragma once
#include "scaffolding/diffusion/pipelines/cogvideox/cogvideox.h"
#include "scaffolding/train/text_to_video/model.h"

namespace sf::train {

class SampleClips {
 public:
  // Takes the autoencoder and the scheduler of the run.
  SampleClips(const TextToVideoRun& run, std::shared_ptr<const tokenizers::Tokenizer> tokenizer);
  void write(TextToVideoModel& model, int64_t step) const;  // denoiser/samples/step-001000.png
  void save_pipeline(TextToVideoModel& model) const;        // into pipeline/, in float16

 private:
  const TextToVideoRun& run_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  diffusion::Ref<diffusion::Autoencoder> vae_;
};

}  // namespace sf::train
