// EncodedPictures: captioned pictures as a pipeline's denoiser sees them. The autoencoder and the text encoders are not
// trained, so that each picture is encoded once and waits in memory; so is each caption.
#pragma once
#include <functional>
#include <map>

#include "scaffolding/data/image_dataset.h"
#include "scaffolding/diffusion/pipelines/pipeline.h"

namespace sf::train {

class EncodedPictures : public data::Dataset {
 public:
  struct Options {
    std::string caption;  // of all, instead of their own
    bool flip = false;    // mirrored ones besides, of which samples take half
    uint64_t seed = 0;    // of the latents, which are draws from the autoencoder's distribution
    // After each picture; false stops it: Stopped.
    std::function<bool(int64_t done, int64_t all)> progress;
  };
  // pictures: float32 [3, H, W] in [-1, 1], of one size. Those that cannot be read are left out and named in skipped().
  // ValueError where none can be read.
  EncodedPictures(const data::ImageDataset& pictures, diffusion::DiffusionPipeline& pipeline, const Options& options);
  int64_t size() const override { return int64_t(items_.size()); }
  data::Sample get(int64_t index, data::SampleRandom& random) const override;  // image: latents [C, h, w], scaled
  const std::vector<data::Skipped>& skipped() const { return skipped_; }

 private:
  struct Item {
    Tensor latents, mirrored;  // on the host
    std::string caption, name;
  };
  std::vector<Item> items_;
  std::vector<data::Skipped> skipped_;
};

// What a text-to-image pipeline tells its denoiser for prompts, by prompt, without guidance: whatever the pipeline, its
// own run says it.
class EncodedPrompts {
 public:
  // height and width of the pictures, pixels.
  EncodedPrompts(diffusion::DiffusionPipeline& pipeline, int64_t height, int64_t width)
      : pipeline_(pipeline), height_(height), width_(width) {}
  // The call for samples[B, ...] at timesteps[B], of which each is told its prompt.
  diffusion::DenoiserCall call(const std::vector<std::string>& prompts, const Tensor& samples, const Tensor& timesteps);
  // What the denoiser's output predicts, as the scheduler has it. After a call.
  Tensor as_predicted(const Tensor& output) const { return run_->as_predicted(output); }

 private:
  const diffusion::DenoiserCall& told(const std::string& prompt);

  diffusion::DiffusionPipeline& pipeline_;
  int64_t height_, width_;
  double no_guidance_ = 1;                               // a scale at which the pipeline does not guide
  std::unique_ptr<diffusion::Run> run_;                  // of the prompt that was encoded last
  std::map<std::string, diffusion::DenoiserCall> told_;  // until there are kMostPrompts, then from none again
};

}  // namespace sf::train
