// AutoencoderTiny: TAESD, an autoencoder that is small enough to preview latents with.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/nn/conv.h"

namespace sf::models {

struct AutoencoderTinyConfig {
  int64_t in_channels = 3, out_channels = 3;
  std::vector<int64_t> encoder_block_out_channels{64, 64, 64, 64}, decoder_block_out_channels{64, 64, 64, 64};
  std::string act_fn = "relu", upsample_fn = "nearest";
  int64_t latent_channels = 4, upsampling_scaling_factor = 2;
  std::vector<int64_t> num_encoder_blocks{1, 3, 3, 3}, num_decoder_blocks{3, 3, 3, 1};
  int64_t latent_magnitude = 3;
  double latent_shift = 0.5;
  bool force_upcast = false;
  double scaling_factor = 1, shift_factor = 0;
  bool use_midblock_gn = false;  // a pool branch in the blocks of the smallest size, as TAEF2 has (not in diffusers)
  std::vector<int64_t> block_out_channels;  // what pipelines read: decoder_block_out_channels, whatever is given
  io::Fields fields();
};

// Three convolutions around a skip; the same size and channels. With a pool, that is added to the input first: 1x1 to
// four times the channels, group norm, ReLU, 1x1 back.
struct AutoencoderTinyBlock : nn::Module {
  nn::Sequential conv;
  std::optional<nn::Conv2d> skip;  // where the number of channels changes
  std::optional<nn::Sequential> pool;
  SF_MODULE(AutoencoderTinyBlock, conv, skip, pool)
  AutoencoderTinyBlock(int64_t in_channels, int64_t out_channels, const std::string& act_fn, bool with_pool = false);
  Tensor forward(const Tensor& x) const;
};

struct EncoderTiny : CheckpointedModule {
  nn::Sequential layers;
  SF_MODULE(EncoderTiny, layers)
  explicit EncoderTiny(const AutoencoderTinyConfig& c);
  Tensor forward(const Tensor& x) const;  // [B, in, H, W] in [-1, 1] -> [B, latent, H / 8, W / 8]
};

struct DecoderTiny : CheckpointedModule {
  nn::Sequential layers;
  SF_MODULE(DecoderTiny, layers)
  explicit DecoderTiny(const AutoencoderTinyConfig& c);
  Tensor forward(const Tensor& x) const;  // latents -> [B, out, 8 h, 8 w] in [-1, 1]
};

struct AutoencoderTiny : ConfiguredModel<AutoencoderTinyConfig> {
  static constexpr const char* kName = "AutoencoderTiny";
  EncoderTiny encoder;
  DecoderTiny decoder;
  SF_MODULE(AutoencoderTiny, encoder, decoder)
  explicit AutoencoderTiny(Config config = {});

  // Slicing computes one picture of a batch at a time. Tiling computes overlapping squares and blends them; pictures
  // must then have sizes that spatial_scale_factor divides.
  bool use_slicing = false, use_tiling = false;
  int64_t spatial_scale_factor;  // pixels per latent on a side; 2 ^ out_channels, as diffusers has it
  int64_t tile_sample_min_size = 512, tile_latent_min_size;  // pixels and latents on a side of a tile
  double tile_overlap_factor = 0.125;                        // of a tile's side
  void enable_slicing(bool on = true) { use_slicing = on; }
  void enable_tiling(bool on = true) { use_tiling = on; }

  Tensor encode(const Tensor& x) const;
  Tensor decode(const Tensor& x) const;
  Tensor scale_latents(const Tensor& x) const;    // raw latents -> [0, 1]
  Tensor unscale_latents(const Tensor& x) const;  // and back
  Tensor forward(const Tensor& sample) const;     // there and back by way of 8-bit latents

 private:
  Tensor tiled_encode(const Tensor& x) const;
  Tensor tiled_decode(const Tensor& x) const;
};

// A model from the two files that TAESD's authors publish (taesd, taesdxl, taesd3, taef1, taef2; .pth or .safetensors),
// whose tensors are numbered. The number of latent channels and the pool branches of TAEF2 are seen from the files.
// dtype: absent, the files'. ValueError for a file of something else.
std::unique_ptr<AutoencoderTiny> load_taesd(const std::string& encoder_path, const std::string& decoder_path,
                                            std::optional<DType> dtype = {});

}  // namespace sf::models
