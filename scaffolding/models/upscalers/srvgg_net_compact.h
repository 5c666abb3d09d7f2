// SRVGGNetCompact: Real-ESRGAN's small network, which enlarges pictures. Keys and config are Real-ESRGAN's.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/upscalers/upscaling_model.h"
#include "scaffolding/nn/conv.h"

namespace sf::models {

struct SRVGGNetCompactConfig {
  int64_t num_in_ch = 3, num_out_ch = 3;
  int64_t num_feat = 64, num_conv = 16, upscale = 4;
  std::string act_type = "prelu";  // or "relu", "leakyrelu"
  io::Fields fields();
};

struct SRVGGNetCompact : ConfiguredModel<SRVGGNetCompactConfig>, UpscalingModel {
  static constexpr const char* kName = "SRVGGNetCompact";
  nn::Sequential body;  // convolutions and activations in turn; the last convolution gives blocks of pixels
  SF_MODULE(SRVGGNetCompact, body)
  explicit SRVGGNetCompact(Config config = {});

  // The config of a file's tensors; act_type is "relu" where they do not say. ValueError for others.
  static io::Object config_of_weights(const std::vector<io::CheckpointEntry>& tensors);

  // x[B, num_in_ch, H, W] in [0, 1] -> [B, num_out_ch, upscale * H, upscale * W]: what is added to each pixel of x.
  Tensor forward(const Tensor& x) const;

  int64_t upscale_factor() const override { return options.upscale; }
  int64_t input_channels() const override { return options.num_in_ch; }
  int64_t output_channels() const override { return options.num_out_ch; }
  int64_t reach() const override { return options.num_conv + 2; }
  Tensor upscale(const Tensor& x) const override { return (*this)(x); }

 private:
  // The convolutions in two pictures, with the activations; absent where no kernel does that.
  Tensor body_in_place(const Tensor& x) const;
};

}  // namespace sf::models
