// TrainingLatents: where the stages after the autoencoder's find latents with their prompts. Icons as they are were
// encoded once and wait in a file; compositions, no two of which are alike, are encoded a batch at a time.
#pragma once
#include "scaffolding/data/dataset.h"
#include "scaffolding/models/autoencoders/autoencoder_kl.h"
#include "scaffolding/train/text_to_image/stage.h"

namespace sf::train {

class TrainingLatents {
 public:
  // Needs pipeline/vae, and latents.safetensors where nothing is composed. The run must outlive it.
  explicit TrainingLatents(const TextToImageRun& run);
  std::shared_ptr<const data::Dataset> dataset() const { return dataset_; }
  Tensor of(const data::Batch& batch) const;  // float32 [B, channels, side, side], on the run's device
  int64_t channels() const { return channels_; }
  int64_t side() const { return side_; }

 private:
  std::shared_ptr<const data::Dataset> dataset_;
  std::unique_ptr<models::Model> model_;  // null where latents are cached
  const models::AutoencoderKL* vae_ = nullptr;
  Device device_;
  int64_t channels_ = 0, side_ = 0;
};

}  // namespace sf::train
