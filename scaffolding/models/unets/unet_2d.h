// UNet2DModel: the denoiser of pictures without text or latents, as DDPM, DDIM and score-based models have it.
#pragma once
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/models/parts/packed_projections.h"
#include "scaffolding/models/unets/unet_2d_picture_blocks.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/streaming/residence.h"

namespace sf::models {

// diffusers' fields.
struct UNet2DConfig {
  io::Object sample_size;  // None, a number or [H, W]: what pipelines make, nothing to the model
  int64_t in_channels = 3, out_channels = 3;
  bool center_input_sample = false;
  std::string time_embedding_type = "positional";  // "fourier" of noise levels' logarithms, "learned" of whole numbers
  std::optional<int64_t> time_embedding_dim;
  int64_t freq_shift = 0;
  bool flip_sin_to_cos = true;
  std::vector<std::string> down_block_types{"DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"};
  std::optional<std::string> mid_block_type = "UNetMidBlock2D";
  std::vector<std::string> up_block_types{"AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D"};
  std::vector<int64_t> block_out_channels{224, 448, 672, 896};
  int64_t layers_per_block = 2;
  double mid_block_scale_factor = 1;
  int64_t downsample_padding = 1;
  std::string downsample_type = "conv", upsample_type = "conv";  // of levels with attention; or "resnet"
  double dropout = 0;
  std::string act_fn = "silu";
  std::optional<int64_t> attention_head_dim = 8;  // None: one head
  std::optional<int64_t> norm_num_groups = 32, attn_norm_num_groups;
  double norm_eps = 1e-5;
  std::string resnet_time_scale_shift = "default";
  bool add_attention = true;
  std::optional<std::string> class_embed_type;
  std::optional<int64_t> num_class_embeds, num_train_timesteps;
  io::Fields fields();
};

// Sines and cosines of 2 pi times the logarithms of noise levels [N], at frequencies that are drawn once and do not
// train: [N, 2 size].
struct GaussianFourierProjection : nn::Module {
  Tensor weight;  // [size]
  SF_MODULE(GaussianFourierProjection, weight)
  GaussianFourierProjection(int64_t size, double scale);
  Tensor forward(const Tensor& levels) const;
};

struct UNet2DModel : ConfiguredModel<UNet2DConfig>, PackedPart, nn::ReadsBelow {
  static constexpr const char* kName = "UNet2DModel";
  nn::Conv2d conv_in;
  std::shared_ptr<nn::Module> time_proj;  // a GaussianFourierProjection or Embedding; absent: sines and cosines
  TimestepEmbedding time_embedding;
  std::shared_ptr<nn::Module> class_embedding;  // an Embedding, TimestepEmbedding or Identity, or absent
  nn::ModuleList<PictureDownLevel> down_blocks;
  nn::ModuleList<PictureUpLevel> up_blocks;
  std::optional<PictureMidLevel> mid_block;
  nn::GroupNorm conv_norm_out;
  nn::Conv2d conv_out;
  SF_MODULE(UNet2DModel, conv_in, time_proj, time_embedding, class_embedding, down_blocks, up_blocks, mid_block,
            conv_norm_out, conv_out)

  explicit UNet2DModel(Config config = {});

  // The prediction [B, out_channels, H, W] for sample[B, in_channels, H, W] at a timestep [] or [B]. Each level but the
  // last halves H and W, which must be multiples of that.
  //   class_labels[B] (class_embed_type None, "timestep"), [B, time_embedding_dim] ("identity")
  Tensor forward(const Tensor& sample, const Tensor& timestep, const Tensor& class_labels = {}) const;

  std::string current_key(const std::string& file_key) const override;
  bool pack() override;                 // the residual blocks' time projections
  Tensors read_below() const override;  // the same, and what is added to them

 private:
  std::vector<const ResnetBlock2D*> timed_blocks() const;  // residual blocks that keep the size, in one order
  Tensor projected_time(const Tensor& timesteps) const;
  Tensor embed(const Tensor& sample, const Tensor& timestep, const Tensor& class_labels) const;
};

}  // namespace sf::models
