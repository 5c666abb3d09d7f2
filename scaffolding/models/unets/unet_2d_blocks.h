// The levels of UNets, under diffusers' names and keys. Pictures are [B, C, H, W]; with checkpointing on, residual
// blocks and transformer blocks are computed again in the backward pass one by one.
#pragma once
#include "scaffolding/models/parts/free_u.h"
#include "scaffolding/models/parts/resnet.h"
#include "scaffolding/models/transformers/transformer_2d.h"

namespace sf::models {

struct UNetBlockOptions {
  int64_t in_channels = 0, out_channels = 0;
  // up blocks: channels of the level's last skip, those of the level below (diffusers' in_channels)
  int64_t skip_channels = 0;
  std::optional<int64_t> temb_channels;
  int64_t num_layers = 1;
  std::vector<int64_t> transformer_layers{1};  // of each layer's transformer
  bool resample = true;                        // a downsampler or upsampler at the end
  int64_t downsample_padding = 1;
  int64_t groups = 32;
  double eps = 1e-6, dropout = 0, output_scale_factor = 1;
  bool scale_shift = false;  // resnet_time_scale_shift "scale_shift"
  int64_t num_attention_heads = 1;
  int64_t cross_attention_dim = 1280;
  bool use_linear_projection = false, only_cross_attention = false, upcast_attention = false;

  ResnetBlock2DOptions resnet() const;
  Transformer2DConfig transformer(size_t layer) const;
};

// What all levels share, of UNets with text and without: residual blocks.
struct ResnetLevel : CheckpointedModule {
  nn::ModuleList<ResnetBlock2D> resnets;

 protected:
  Tensor resnet(size_t i, const Tensor& hidden_states, const Tensor& temb) const;
  // Of hidden states and a skip, channels behind channels.
  Tensor joined(size_t i, const Tensor& hidden_states, const Tensor& skip, const Tensor& temb) const;
};

// Pairs of a residual block and, with cross-attention, a transformer behind it.
struct UNetBlock : ResnetLevel {
  nn::ModuleList<Transformer2DModel> attentions;  // as many as layers, or none

 protected:
  Tensor attend(size_t i, const Tensor& hidden_states, const Tensor& encoder_hidden_states,
                const Tensor& attention_mask, const Tensor& encoder_attention_mask) const;
};

// Down one level. The results are the skips: the output of every pair and of the downsampler; the last one goes on.
struct UNetDownBlock : UNetBlock {
  std::optional<nn::ModuleList<Downsample2D>> downsamplers;
  SF_MODULE(UNetDownBlock, attentions, resnets, downsamplers)
  UNetDownBlock(const UNetBlockOptions& options, bool attention);
  // encoder_hidden_states[B, M, cross_attention_dim] and masks are for attentions only. additional_residual, an
  // adapter's, is added to the last pair's output.
  Tensors forward(const Tensor& hidden_states, const Tensor& temb, const Tensor& encoder_hidden_states = {},
                  const Tensor& attention_mask = {}, const Tensor& encoder_attention_mask = {},
                  const Tensor& additional_residual = {}) const;
};
struct DownBlock2D : UNetDownBlock {
  SF_MODULE(DownBlock2D, resnets, downsamplers)
  explicit DownBlock2D(const UNetBlockOptions& options);
};
struct CrossAttnDownBlock2D : UNetDownBlock {
  SF_MODULE(CrossAttnDownBlock2D, attentions, resnets, downsamplers)
  explicit CrossAttnDownBlock2D(const UNetBlockOptions& options);
};

// Up one level: each residual block sees the hidden states and the last of the skips that are left,
// channels behind channels.
struct UNetUpBlock : UNetBlock, TakesFreeU {
  std::optional<nn::ModuleList<Upsample2D>> upsamplers;
  SF_MODULE(UNetUpBlock, attentions, resnets, upsamplers)
  UNetUpBlock(const UNetBlockOptions& options, bool attention);
  // skips: as many as residual blocks. upsample_size: [H, W] of the result, empty for twice the input's.
  Tensor forward(const Tensor& hidden_states, const Tensors& skips, const Tensor& temb,
                 const Tensor& encoder_hidden_states = {}, const Shape& upsample_size = {},
                 const Tensor& attention_mask = {}, const Tensor& encoder_attention_mask = {}) const;
};
struct UpBlock2D : UNetUpBlock {
  SF_MODULE(UpBlock2D, resnets, upsamplers)
  explicit UpBlock2D(const UNetBlockOptions& options);
};
struct CrossAttnUpBlock2D : UNetUpBlock {
  SF_MODULE(CrossAttnUpBlock2D, attentions, resnets, upsamplers)
  explicit CrossAttnUpBlock2D(const UNetBlockOptions& options);
};

// A residual block, then num_layers times a transformer and a residual block.
struct UNetMidBlock2DCrossAttn : UNetBlock {
  SF_MODULE(UNetMidBlock2DCrossAttn, attentions, resnets)
  explicit UNetMidBlock2DCrossAttn(const UNetBlockOptions& options);
  Tensor forward(const Tensor& hidden_states, const Tensor& temb, const Tensor& encoder_hidden_states = {},
                 const Tensor& attention_mask = {}, const Tensor& encoder_attention_mask = {}) const;
};

}  // namespace sf::models
