// AutoencoderKLLTX2Audio: LTX-2's autoencoder of sound (HaCohen et al. 2026, arXiv 2601.03233): log-mel spectrograms of
// stereo sound, a quarter of their frames and of their mel bins in latents. A vocoder (models/vocoders/) makes sound of
// what it decodes.
#pragma once
#include "scaffolding/models/autoencoders/ltx2_audio_blocks.h"
#include "scaffolding/models/autoencoders/vae.h"

namespace sf::models {

struct AutoencoderKLLTX2AudioConfig {
  int64_t base_channels = 128, output_channels = 2;
  std::vector<int64_t> ch_mult{1, 2, 4};  // of each size, times base_channels
  int64_t num_res_blocks = 2;
  io::Object attn_resolutions;  // null, or a list of the sizes with attention
  int64_t in_channels = 2, resolution = 256, latent_channels = 8;
  std::string norm_type = "pixel";        // or "group"
  std::string causality_axis = "height";  // or "width", "width-compatibility", "none"
  double dropout = 0;
  bool mid_block_add_attention = false;
  int64_t sample_rate = 16000, mel_hop_length = 160;  // samples a second, and of a frame of the spectrogram
  bool is_causal = true;
  std::optional<int64_t> mel_bins = 64;
  bool double_z = true;
  io::Fields fields();
};

struct AutoencoderKLLTX2Audio : ConfiguredModel<AutoencoderKLLTX2AudioConfig> {
  static constexpr const char* kName = "AutoencoderKLLTX2Audio";
  LTX2AudioEncoder encoder;
  LTX2AudioDecoder decoder;
  // Of latents whose channels and bins are one list, [latent_channels * bins] = [base_channels] of the published ones.
  nn::Buffer latents_mean, latents_std;
  SF_MODULE(AutoencoderKLLTX2Audio, encoder, decoder, latents_mean, latents_std)
  explicit AutoencoderKLLTX2Audio(Config config = {});

  // Frames of a spectrogram, and mel bins, for one of the latents.
  static constexpr int64_t temporal_compression_ratio = 4, mel_compression_ratio = 4;

  bool use_slicing = false;  // one spectrogram of a batch at a time
  void enable_slicing(bool on = true) { use_slicing = on; }

  Tensor moments(const Tensor& x) const;  // [B, in, L, M] -> [B, 2 latent, (L + 3) / 4, M / 4], of the default config
  DiagonalGaussianDistribution encode(const Tensor& x) const { return DiagonalGaussianDistribution(moments(x)); }
  Tensor decode(const Tensor& z) const;  // [B, latent, l, m] -> [B, output_channels, 4 l - 3, mel_bins]
  // There and back, by a sample of the latents or by their means.
  Tensor forward(const Tensor& sample, bool sample_posterior = false, const Generator& generator = {}) const;

 private:
  Tensor decoded(const Tensor& z) const;
};

}  // namespace sf::models
