// CachedLatents: the icons as the autoencoder sees them, waiting in a file: for each the one on white and some on other
// backgrounds. A sample's image is one of them, float32 [C, h, w], its caption the prompt that goes with it.
// Thread-safe, as every Dataset.
#pragma once
#include <functional>

#include "scaffolding/data/icon_dataset.h"
#include "scaffolding/models/autoencoders/autoencoder_kl.h"

namespace sf::train {

class CachedLatents : public data::Dataset {
 public:
  // Encodes all icons (means of the posterior, times the scaling factor) and writes the file. progress(done, all) after
  // each; false stops it, and nothing is written. device: the autoencoder's.
  static bool write(const data::IconDataset& icons, const models::AutoencoderKL& vae, Device device,
                    int64_t backgrounds, uint64_t seed, const std::string& path,
                    const std::function<bool(int64_t, int64_t)>& progress);
  // ValueError for a file that was made of other icons.
  CachedLatents(std::shared_ptr<const data::IconDataset> icons, const std::string& path);
  int64_t size() const override { return icons_->size(); }
  int64_t channels() const { return latents_.size(2); }
  int64_t side() const { return latents_.size(4); }  // of a square latent
  data::Sample get(int64_t index, data::SampleRandom& random) const override;

 private:
  std::shared_ptr<const data::IconDataset> icons_;
  Tensor latents_;     // float16 [icons, 1 + backgrounds, C, h, w]
  Tensor background_;  // int64 [icons, 1 + backgrounds], places in background_colours()
};

}  // namespace sf::train
