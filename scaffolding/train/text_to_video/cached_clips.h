// CachedClips: clips, the colours of their flow and the ids of their captions, as the networks are trained on them: the
// autoencoder's latents, encoded once. A sample's image is the latents, float32 [T, C, h, w] times scaling_factor, its
// target those of its flow, where there are trajectories. Thread-safe, as every Dataset.
#pragma once
#include "scaffolding/data/cached_rows.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_cogvideox.h"
#include "scaffolding/tokenizers/tokenizer.h"
#include "scaffolding/train/text_to_video/stage.h"

namespace sf::train {

class CachedClips final : public data::Dataset {
 public:
  // Encodes recipe.denoiser.clips clips of each sample (means of the posterior). False when SIGINT stopped it: nothing
  // is written.
  static bool write(const TextToVideoRun& run, const models::AutoencoderKLCogVideoX& vae,
                    const tokenizers::Tokenizer& tokenizer);
  // ValueError for rows that were made by another recipe.
  explicit CachedClips(const TextToVideoRun& run);
  int64_t size() const override { return rows_.size(); }
  data::Sample get(int64_t index, data::SampleRandom& random) const override;
  // int64 [samples, max_tokens] of captions; the empty one's where `dropped` (bool, may be absent) says so.
  Tensor ids(const std::vector<int64_t>& samples, const Tensor& dropped = {}) const;
  Tensor clip(int64_t index) const;  // latents, as get() has them
  bool has_flow() const { return has_flow_; }

 private:
  data::CachedRows rows_;
  bool has_flow_;
  Tensor no_caption_;  // [max_tokens]
};

// Ids [prompts, max_tokens], cut or padded. One prompt at least.
Tensor caption_ids(const tokenizers::Tokenizer& tokenizer, const std::vector<std::string>& prompts);

}  // namespace sf::train
