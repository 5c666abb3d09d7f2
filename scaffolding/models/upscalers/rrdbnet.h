// RRDBNet: ESRGAN's and Real-ESRGAN's network, which enlarges pictures. Keys and config are Real-ESRGAN's.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/models/upscalers/upscaling_model.h"
#include "scaffolding/nn/conv.h"

namespace sf::models {

struct RRDBNetConfig {
  int64_t num_in_ch = 3, num_out_ch = 3;
  int64_t scale = 4;
  int64_t num_feat = 64, num_block = 23, num_grow_ch = 32;
  // Doublings behind the blocks. Where they make more than scale, as Real-ESRGAN's of 1 and 2, the picture comes in as
  // blocks of pixels, each a channel.
  int64_t num_upsample = 2;
  int64_t block_of_pixels() const { return (int64_t(1) << num_upsample) / scale; }
  io::Fields fields();
};

// Five convolutions, each of which sees the results of all before it: x[B, num_feat, H, W] to the same.
struct ResidualDenseBlock : nn::Module {
  nn::Conv2d conv1, conv2, conv3, conv4, conv5;
  SF_MODULE(ResidualDenseBlock, conv1, conv2, conv3, conv4, conv5)
  ResidualDenseBlock(int64_t num_feat, int64_t num_grow_ch);
  Tensor forward(const Tensor& x) const;
  // The same in place, where RRDBNet found that it may: x is the first channels of `features`, whose others take what
  // is computed on the way; y = residual + scale * forward(x), or forward(x).
  bool run_into(const Tensor& y, const Tensor& features, const Tensor& slopes, const Tensor& residual) const;
};

struct RRDB : CheckpointedModule {
  ResidualDenseBlock rdb1, rdb2, rdb3;
  SF_MODULE(RRDB, rdb1, rdb2, rdb3)
  RRDB(int64_t num_feat, int64_t num_grow_ch);
  Tensor forward(const Tensor& x) const;
};

struct RRDBNet : ConfiguredModel<RRDBNetConfig>, UpscalingModel {
  static constexpr const char* kName = "RRDBNet";
  nn::Conv2d conv_first;
  nn::ModuleList<RRDB> body;
  nn::Conv2d conv_body;
  std::optional<nn::Conv2d> conv_up1, conv_up2, conv_up3, conv_up4;  // num_upsample of them
  nn::Conv2d conv_hr, conv_last;
  SF_MODULE(RRDBNet, conv_first, body, conv_body, conv_up1, conv_up2, conv_up3, conv_up4, conv_hr, conv_last)
  explicit RRDBNet(Config config = {});

  // The config of a file's tensors, under Real-ESRGAN's, BSRGAN's or old ESRGAN's names. ValueError for others,
  // NotSupported for ESRGAN+.
  static io::Object config_of_weights(const std::vector<io::CheckpointEntry>& tensors);

  // x[B, num_in_ch, H, W] in [0, 1] -> [B, num_out_ch, scale * H, scale * W]
  Tensor forward(const Tensor& x) const;

  int64_t upscale_factor() const override { return options.scale; }
  int64_t input_channels() const override { return options.num_in_ch; }
  int64_t output_channels() const override { return options.num_out_ch; }
  int64_t multiple() const override { return options.block_of_pixels(); }
  int64_t reach() const override;
  Tensor upscale(const Tensor& x) const override { return (*this)(x); }

 private:
  std::vector<const nn::Conv2d*> ups() const;
  Tensor with_body(const Tensor& features) const;  // features and what body and conv_body make of them
  // body in two pictures with room for what its blocks compute; absent where no kernel does that.
  Tensor trunk_in_place(const Tensor& features) const;
  Tensor enlarged(const Tensor& features) const;  // what follows the body
  // The same for a band of rows at a time, so that the enlarged features are never in memory as a whole; absent where
  // no kernel finishes convolutions.
  Tensor enlarged_in_bands(const Tensor& features) const;
  Tensor enlarged_band(const Tensor& features, const Tensor& here, const Tensor& there) const;
};

}  // namespace sf::models
