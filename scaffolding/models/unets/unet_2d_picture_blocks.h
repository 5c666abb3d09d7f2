// The levels of UNet2DModel, which sees pictures and no text: residual blocks, with attention between all pixels behind
// each where the level has it, under diffusers' keys. With checkpointing on, residual blocks are computed again in the
// backward pass one by one.
#pragma once
#include "scaffolding/models/parts/attention.h"
#include "scaffolding/models/unets/unet_2d_blocks.h"

namespace sf::models {

// Which of diffusers' classes a level is: by its name, DownBlock2D and UpBlock2D and what stands before and in them.
struct PictureLevelKind {
  bool attention = false;  // Attn...
  // Skip...: the picture itself goes beside the level, in other sizes by the filter of fir_resample.h
  bool skip = false;
  bool by_resnet = false;  // a residual block changes the size, not a convolution
};

struct PictureLevelOptions {
  PictureLevelKind kind;
  int64_t in_channels = 0, out_channels = 0;
  // up: channels of the level's last skip, those of the level below (diffusers' in_channels)
  int64_t skip_channels = 0;
  int64_t temb_channels = 0;
  int64_t num_layers = 1;
  bool resize = true;  // halve or double at the end
  int64_t downsample_padding = 1;
  std::optional<int64_t> groups;  // of norms; levels that skip have their own
  double eps = 1e-5, dropout = 0;
  bool scale_shift = false;
  std::optional<int64_t> attention_head_dim;  // absent: one head
};

struct PictureDownLevel : ResnetLevel {
  PictureLevelKind kind;
  nn::ModuleList<Attention> attentions;                    // as many as residual blocks, or none
  std::optional<nn::ModuleList<nn::Module>> downsamplers;  // a Downsample2D or ResnetBlock2D
  std::optional<ResnetBlock2D> resnet_down;                // of a level that skips, instead
  std::optional<nn::Conv2d> skip_conv;
  SF_MODULE(PictureDownLevel, attentions, resnets, downsamplers, resnet_down, skip_conv)
  explicit PictureDownLevel(const PictureLevelOptions& options);
  // The skips: the output of each pair, and of what halves the size; the last one goes on. Of a level that skips, then
  // the picture [B, 3, ...], as small as that one.
  Tensors forward(const Tensor& hidden_states, const Tensor& temb, const Tensor& picture = {}) const;
};

struct PictureUpLevel : ResnetLevel {
  PictureLevelKind kind;
  nn::ModuleList<Attention> attentions;  // as many as residual blocks; of a level that skips, one behind all
  std::optional<nn::ModuleList<nn::Module>> upsamplers;  // an Upsample2D or ResnetBlock2D
  std::optional<ResnetBlock2D> resnet_up;                // of a level that skips, instead
  std::optional<nn::Conv2d> skip_conv;
  std::optional<nn::GroupNorm> skip_norm;
  SF_MODULE(PictureUpLevel, attentions, resnets, upsamplers, resnet_up, skip_conv, skip_norm)
  explicit PictureUpLevel(const PictureLevelOptions& options);
  // skips: as many as residual blocks, the last one taken first. The result, and of a level that skips the picture
  // [B, 3, ...] so far; picture: of the levels before, absent where there is none.
  Tensors forward(const Tensor& hidden_states, const Tensors& skips, const Tensor& temb,
                  const Tensor& picture = {}) const;
};

struct PictureMidOptions {
  int64_t channels = 0, temb_channels = 0;
  std::optional<int64_t> groups, attention_groups;  // attention without groups has no norm
  double eps = 1e-5, dropout = 0, scale_factor = 1;
  bool scale_shift = false, attention = true;
  std::optional<int64_t> attention_head_dim;
};

// A residual block, attention, and another one: diffusers' UNetMidBlock2D.
struct PictureMidLevel : ResnetLevel {
  nn::ModuleList<Attention> attentions;
  SF_MODULE(PictureMidLevel, attentions, resnets)
  explicit PictureMidLevel(const PictureMidOptions& options);
  Tensor forward(const Tensor& hidden_states, const Tensor& temb) const;
};

// Norms of levels without a number of groups of their own.
inline int64_t groups_of(int64_t channels) { return std::max<int64_t>(1, std::min<int64_t>(channels / 4, 32)); }

}  // namespace sf::models
