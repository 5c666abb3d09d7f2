#include "scaffolding/models/autoencoders/autoencoder_kl_ltx2_audio.h"

#include <algorithm>

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/models/autoencoders/tiles.h"
#include "scaffolding/models/parts/config_checks.h"

namespace sf::models {

io::Fields AutoencoderKLLTX2AudioConfig::fields() {
  return {{"base_channels", &base_channels},
          {"output_channels", &output_channels},
          {"ch_mult", &ch_mult},
          {"num_res_blocks", &num_res_blocks},
          {"attn_resolutions", &attn_resolutions},
          {"in_channels", &in_channels},
          {"resolution", &resolution},
          {"latent_channels", &latent_channels},
          {"norm_type", &norm_type},
          {"causality_axis", &causality_axis},
          {"dropout", &dropout},
          {"mid_block_add_attention", &mid_block_add_attention},
          {"sample_rate", &sample_rate},
          {"mel_hop_length", &mel_hop_length},
          {"is_causal", &is_causal},
          {"mel_bins", &mel_bins},
          {"double_z", &double_z}};
}

namespace {

using AudioConfig = AutoencoderKLLTX2AudioConfig;

LTX2CausalAxis ltx2_axis(const std::string& name) {
  if (name == "none") return LTX2CausalAxis::None;
  if (name == "width") return LTX2CausalAxis::Width;
  if (name == "width-compatibility") return LTX2CausalAxis::WidthCompatible;
  SF_CHECK(name == "height", AutoencoderKLLTX2Audio::kName,
           ": causality_axis must be height, width, width-compatibility or none, got '", name, "'");
  return LTX2CausalAxis::Height;
}

std::vector<int64_t> ltx2_attn_resolutions(const AudioConfig& c) {
  if (c.attn_resolutions.is(io::Object::None)) return {};
  SF_CHECK_AS(TypeError, c.attn_resolutions.is_sequence(), AutoencoderKLLTX2Audio::kName,
              ": attn_resolutions must be None or a list of whole numbers");
  return io::ints_for_blocks(AutoencoderKLLTX2Audio::kName, "attn_resolutions", c.attn_resolutions,
                             c.attn_resolutions.items().size());
}

AudioConfig checked(AudioConfig c) {
  const char* who = AutoencoderKLLTX2Audio::kName;
  check_sizes(who, {{"base_channels", c.base_channels},
                    {"output_channels", c.output_channels},
                    {"in_channels", c.in_channels},
                    {"resolution", c.resolution},
                    {"latent_channels", c.latent_channels},
                    {"sample_rate", c.sample_rate},
                    {"mel_hop_length", c.mel_hop_length},
                    {"mel_bins", c.mel_bins.value_or(1)}});
  check_num_layers(who, c.num_res_blocks);
  SF_CHECK(!c.ch_mult.empty() && c.ch_mult.size() <= 16, who, ": ch_mult must have 1 to 16 entries, got ",
           c.ch_mult.size());
  for (int64_t factor : c.ch_mult)
    SF_CHECK(factor >= 1 && factor * c.base_channels <= kMostChannels, who, ": ch_mult must be 1 to ",
             kMostChannels / c.base_channels, " for base_channels=", c.base_channels, ", got ", factor);
  SF_CHECK(c.norm_type == "pixel" || c.norm_type == "group", who, ": norm_type must be pixel or group, got '",
           c.norm_type, "'");
  SF_CHECK(c.norm_type == "pixel" || ltx2_axis(c.causality_axis) == LTX2CausalAxis::None, who,
           ": norm_type group needs causality_axis none, got '", c.causality_axis, "'");
  SF_CHECK(c.norm_type == "pixel" || c.base_channels % 32 == 0, who,
           ": base_channels must be a multiple of 32 with norm_type group, got ", c.base_channels);
  SF_CHECK_AS(NotSupported, c.double_z, who, ": double_z must be True: an encoder gives means and variances here");
  return c;
}

LTX2AudioHalfOptions half(const AudioConfig& c, int64_t in, int64_t out) {
  return {in,
          out,
          c.base_channels,
          c.ch_mult,
          c.num_res_blocks,
          c.resolution,
          ltx2_attn_resolutions(c),
          c.mid_block_add_attention,
          {c.norm_type == "group", ltx2_axis(c.causality_axis), c.dropout}};
}

void check_spectrogram(const char* method, const char* name, const Tensor& x, int64_t channels) {
  const std::string who = std::string(AutoencoderKLLTX2Audio::kName) + "." + method;
  check_defined(who.c_str(), name, x);
  SF_CHECK(x.ndim() == 4 && x.size(1) == channels && x.numel() > 0, who, ": ", name, " must be [B, ", channels,
           ", L, M], got ", x.shape());
}

}  // namespace

AutoencoderKLLTX2Audio::AutoencoderKLLTX2Audio(Config config)
    : ConfiguredModel(checked(std::move(config))),
      encoder(half(options, options.in_channels, 2 * options.latent_channels)),
      decoder(half(options, options.latent_channels, options.output_channels)),
      latents_mean(zeros({options.base_channels})),
      latents_std(ones({options.base_channels})) {}

Tensor AutoencoderKLLTX2Audio::moments(const Tensor& spectrograms) const {
  check_spectrogram("encode", "x", spectrograms, options.in_channels);
  return in_slices(spectrograms, use_slicing, [this](const Tensor& x) { return encoder(x); });
}

// The size is told by the latents', whatever the convolutions left.
Tensor AutoencoderKLLTX2Audio::decoded(const Tensor& z) const {
  const Tensor y = decoder(z);
  const int64_t frames =
                    std::max<int64_t>(z.size(2) * temporal_compression_ratio - (temporal_compression_ratio - 1), 1),
                bins = options.mel_bins.value_or(z.size(3));
  return contiguous(pad(y, {0, bins - y.size(3), 0, frames - y.size(2)}));
}

Tensor AutoencoderKLLTX2Audio::decode(const Tensor& latents) const {
  check_spectrogram("decode", "z", latents, options.latent_channels);
  cpu::LeanMemory lean;
  return in_slices(latents, use_slicing, [this](const Tensor& z) { return decoded(z); });
}

Tensor AutoencoderKLLTX2Audio::forward(const Tensor& sample, bool sample_posterior, const Generator& generator) const {
  const DiagonalGaussianDistribution posterior = encode(sample);
  return decode(sample_posterior ? posterior.sample(generator) : posterior.mode());
}

SF_MODEL(AutoencoderKLLTX2Audio)
    .doc(
        "diffusers' AutoencoderKLLTX2Audio: mel spectrograms [B, 2, L, 64] to normal distributions of latents [B, 8, "
        "(L + 3) / 4, 16], and latents to spectrograms.")
    .forward<&AutoencoderKLLTX2Audio::forward>("sample, sample_posterior=False, generator=None")
    .method<&AutoencoderKLLTX2Audio::moments>("moments", "x")
    .method<&AutoencoderKLLTX2Audio::decode>("decode", "z")
    .field<&AutoencoderKLLTX2Audio::use_slicing>("use_slicing");

}  // namespace sf::models
