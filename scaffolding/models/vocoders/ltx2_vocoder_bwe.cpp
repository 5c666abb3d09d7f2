#include "scaffolding/models/vocoders/ltx2_vocoder_bwe.h"

#include "scaffolding/models/parts/config_checks.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

LTX2VocoderWithBWEConfig::LTX2VocoderWithBWEConfig() {
  for (LTX2VocoderConfig* half : {&vocoder, &bwe}) {
    half->act_fn = "snakebeta";
    half->antialias = true;
    half->final_act_fn.reset();
    half->final_bias = false;
  }
  vocoder.hidden_channels = 1536;
  vocoder.upsample_kernel_sizes = {11, 4, 4, 4, 4, 4}, vocoder.upsample_factors = {5, 2, 2, 2, 2, 2};
  bwe.hidden_channels = 512;
  bwe.upsample_kernel_sizes = {12, 11, 4, 4, 4}, bwe.upsample_factors = {6, 5, 2, 2, 2};
}

io::Fields LTX2VocoderWithBWEConfig::fields() {
  return {{"in_channels", &vocoder.in_channels},
          {"hidden_channels", &vocoder.hidden_channels},
          {"out_channels", &vocoder.out_channels},
          {"upsample_kernel_sizes", &vocoder.upsample_kernel_sizes},
          {"upsample_factors", &vocoder.upsample_factors},
          {"resnet_kernel_sizes", &vocoder.resnet_kernel_sizes},
          {"resnet_dilations", &vocoder.resnet_dilations},
          {"act_fn", &vocoder.act_fn},
          {"leaky_relu_negative_slope", &vocoder.leaky_relu_negative_slope},
          {"antialias", &vocoder.antialias},
          {"antialias_ratio", &vocoder.antialias_ratio},
          {"antialias_kernel_size", &vocoder.antialias_kernel_size},
          {"final_act_fn", &vocoder.final_act_fn},
          {"final_bias", &vocoder.final_bias},
          {"bwe_in_channels", &bwe.in_channels},
          {"bwe_hidden_channels", &bwe.hidden_channels},
          {"bwe_out_channels", &bwe.out_channels},
          {"bwe_upsample_kernel_sizes", &bwe.upsample_kernel_sizes},
          {"bwe_upsample_factors", &bwe.upsample_factors},
          {"bwe_resnet_kernel_sizes", &bwe.resnet_kernel_sizes},
          {"bwe_resnet_dilations", &bwe.resnet_dilations},
          {"bwe_act_fn", &bwe.act_fn},
          {"bwe_leaky_relu_negative_slope", &bwe.leaky_relu_negative_slope},
          {"bwe_antialias", &bwe.antialias},
          {"bwe_antialias_ratio", &bwe.antialias_ratio},
          {"bwe_antialias_kernel_size", &bwe.antialias_kernel_size},
          {"bwe_final_act_fn", &bwe.final_act_fn},
          {"bwe_final_bias", &bwe.final_bias},
          {"filter_length", &filter_length},
          {"hop_length", &hop_length},
          {"window_length", &window_length},
          {"num_mel_channels", &num_mel_channels},
          {"input_sampling_rate", &input_sampling_rate},
          {"output_sampling_rate", &output_sampling_rate}};
}

namespace {

constexpr double kLeastMel = 1e-5;  // before the logarithm

LTX2VocoderWithBWEConfig checked(LTX2VocoderWithBWEConfig c) {
  const char* who = LTX2VocoderWithBWE::kName;
  check_sizes(who, {{"filter_length", c.filter_length},
                    {"hop_length", c.hop_length},
                    {"window_length", c.window_length},
                    {"num_mel_channels", c.num_mel_channels},
                    {"input_sampling_rate", c.input_sampling_rate},
                    {"output_sampling_rate", c.output_sampling_rate}});
  SF_CHECK(c.output_sampling_rate % c.input_sampling_rate == 0 && c.output_sampling_rate <= 64 * c.input_sampling_rate,
           who, ": output_sampling_rate must be 1 to 64 times input_sampling_rate, got ", c.output_sampling_rate,
           " and ", c.input_sampling_rate);
  // One frame for each hop_length samples
  SF_CHECK(c.filter_length == c.window_length && c.window_length >= c.hop_length, who,
           ": filter_length must be window_length, and at least hop_length, got ", c.filter_length, ", ",
           c.window_length, " and ", c.hop_length);
  SF_CHECK(c.vocoder.out_channels == c.bwe.out_channels, who,
           ": bwe_out_channels must be out_channels, which are added to, got ", c.bwe.out_channels, " and ",
           c.vocoder.out_channels);
  SF_CHECK(c.bwe.in_channels == c.vocoder.out_channels * c.num_mel_channels, who,
           ": bwe_in_channels must be out_channels * num_mel_channels, got ", c.bwe.in_channels, " for ",
           c.vocoder.out_channels, " and ", c.num_mel_channels);
  int64_t factor = 1;
  for (int64_t f : c.bwe.upsample_factors) {
    SF_CHECK(f >= 1 && f <= kMostChannels && factor <= kMostChannels, who, ": bwe_upsample_factors must be at least 1");
    factor *= f;
  }
  SF_CHECK(factor == c.hop_length * (c.output_sampling_rate / c.input_sampling_rate), who,
           ": bwe_upsample_factors must multiply to hop_length * output_sampling_rate / input_sampling_rate, got ",
           factor, " for ", c.hop_length, ", ", c.output_sampling_rate, " and ", c.input_sampling_rate);
  c.vocoder.output_sampling_rate = c.input_sampling_rate;
  c.bwe.output_sampling_rate = c.output_sampling_rate;
  return c;
}

}  // namespace

CausalSTFT::CausalSTFT(int64_t filter_length, int64_t hop, int64_t window)
    : hop_length(hop),
      window_length(window),
      forward_basis(zeros({2 * (filter_length / 2 + 1), 1, filter_length})),
      inverse_basis(zeros({2 * (filter_length / 2 + 1), 1, filter_length})) {}

Tensor CausalSTFT::forward(const Tensor& waveform) const {
  const Tensor both = conv1d(pad(waveform, {window_length - hop_length, 0}), forward_basis, {}, {hop_length});
  const Tensors parts = chunk(both, 2, 1);
  return sqrt(square(parts[0]) + square(parts[1]));
}

MelSTFT::MelSTFT(int64_t filter_length, int64_t hop_length, int64_t window_length, int64_t num_mel_channels)
    : stft_fn(filter_length, hop_length, window_length), mel_basis(zeros({num_mel_channels, filter_length / 2 + 1})) {}

Tensor MelSTFT::forward(const Tensor& waveform) const {
  const Tensor magnitude = stft_fn(waveform);
  return log(clamp(matmul(mel_basis.to(magnitude.dtype()), magnitude), kLeastMel));
}

LTX2VocoderWithBWE::LTX2VocoderWithBWE(Config config)
    : ConfiguredModel(checked(std::move(config))),
      vocoder(options.vocoder),
      bwe_generator(options.bwe),
      mel_stft(options.filter_length, options.hop_length, options.window_length, options.num_mel_channels) {}

Tensor LTX2VocoderWithBWE::resampled(const Tensor& x) const {
  const int64_t ratio = options.output_sampling_rate / options.input_sampling_rate;
  return resampled_by_hann(x, resampler_.of({ratio}, x, x.dtype(), [&] { return hann_sinc_filter1d(ratio); }), ratio);
}

Tensor LTX2VocoderWithBWE::forward(const Tensor& mel_spec) const {
  Tensor x = vocoder(mel_spec);
  const int64_t samples = x.size(2), rest = samples % options.hop_length;
  if (rest != 0) x = pad(x, {0, options.hop_length - rest});
  Tensor mel = mel_stft(x.reshape({-1, 1, x.size(2)}));
  mel = unflatten(mel, 0, {x.size(0), x.size(1)}).transpose(2, 3);
  const Tensor y = clamp(bwe_generator(mel) + resampled(x), -1, 1);
  return contiguous(y.narrow(2, 0, samples * (options.output_sampling_rate / options.input_sampling_rate)));
}

SF_MODEL(LTX2VocoderWithBWE)
    .doc("diffusers' LTX2VocoderWithBWE: mel spectrograms [B, 2, L, 64] to sound [B, 2, 480 L] in [-1, 1].")
    .forward<&LTX2VocoderWithBWE::forward>("mel_spec");

}  // namespace sf::models
