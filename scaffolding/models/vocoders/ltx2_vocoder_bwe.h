// LTX2VocoderWithBWE: LTX-2.3's vocoder. A first vocoder makes sound of a low sampling rate, whose own mel spectrogram
// a second one makes into what a resampled copy lacks: the high frequencies (bandwidth extension).
#pragma once
#include "scaffolding/models/parts/kept_table.h"
#include "scaffolding/models/vocoders/ltx2_vocoder.h"

namespace sf::models {

struct LTX2VocoderWithBWEConfig {
  LTX2VocoderConfig vocoder, bwe;  // their fields, the latter's behind "bwe_"; sampling rates are below
  int64_t filter_length = 512, hop_length = 80, window_length = 512, num_mel_channels = 64;
  int64_t input_sampling_rate = 16000, output_sampling_rate = 48000;
  LTX2VocoderWithBWEConfig();
  io::Fields fields();
};

// Magnitudes of a causal short-time Fourier transform, by a convolution with windowed sines and cosines, which are the
// checkpoint's: a frame sees window_length samples that end with its own hop_length.
struct CausalSTFT : nn::Module {
  int64_t hop_length, window_length;
  nn::Buffer forward_basis, inverse_basis;  // [2 F, 1, filter_length]: cosines, then sines; F = filter_length / 2 + 1
  SF_MODULE(CausalSTFT, forward_basis, inverse_basis)
  CausalSTFT(int64_t filter_length, int64_t hop_length, int64_t window_length);
  Tensor forward(const Tensor& waveform) const;  // [B, 1, L] -> [B, F, frames]
};

struct MelSTFT : nn::Module {
  CausalSTFT stft_fn;
  nn::Buffer mel_basis;  // [mel bins, F]
  SF_MODULE(MelSTFT, stft_fn, mel_basis)
  MelSTFT(int64_t filter_length, int64_t hop_length, int64_t window_length, int64_t num_mel_channels);
  Tensor forward(const Tensor& waveform) const;  // [B, 1, L] -> logarithms [B, mel bins, L / hop_length]
};

struct LTX2VocoderWithBWE : ConfiguredModel<LTX2VocoderWithBWEConfig> {
  static constexpr const char* kName = "LTX2VocoderWithBWE";
  LTX2Vocoder vocoder, bwe_generator;
  MelSTFT mel_stft;
  SF_MODULE(LTX2VocoderWithBWE, vocoder, bwe_generator, mel_stft)
  explicit LTX2VocoderWithBWE(Config config = {});
  const char* library() const override { return "ltx2"; }  // a module of diffusers, as its index has it
  // [B, channels, frames, mel bins] -> [B, out_channels, samples at output_sampling_rate] in [-1, 1].
  Tensor forward(const Tensor& mel_spec) const;

 private:
  Tensor resampled(const Tensor& x) const;
  KeptTable resampler_;
};

}  // namespace sf::models
