// What Tora (Zhang et al. 2024, arXiv 2407.21705) adds to a video transformer: features of a flow's latents, and their
// fusion into the tokens of each block. Names and keys are Tora's.
#pragma once
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

// Norm, ReLU, convolution, twice, beside the input.
struct TrajResnetBlock : nn::Module {
  nn::Conv2d block1, block2;
  nn::BatchNorm2d bn1, bn2;
  SF_MODULE(TrajResnetBlock, block1, block2, bn1, bn2)
  explicit TrajResnetBlock(int64_t channels);
  Tensor forward(const Tensor& x) const;  // [N, channels, H, W]
};

struct TrajExtractorOptions {
  int64_t in_channels = 16;  // of the flow's latents
  int64_t channels = 128;    // of the features
  int64_t features = 42;     // one for each block of the transformer
  int64_t resnets_per_feature = 2;
  int64_t patch_size = 2, patch_size_t = 1;  // the transformer's
};

// Features at the places of the transformer's tokens. What patches do not divide is filled with zeros at the far ends.
struct TrajExtractor : nn::Module {
  int64_t in_channels, patch_size, patch_size_t, resnets_per_feature;
  nn::ModuleList<TrajResnetBlock> body;
  nn::Conv2d conv_in;
  SF_MODULE(TrajExtractor, body, conv_in)
  explicit TrajExtractor(const TrajExtractorOptions& options);
  // video_flow[B, T, in_channels, H, W] -> as many features as asked for, each [B, T / patch_size_t, channels,
  // H / patch_size, W / patch_size].
  Tensors forward(const Tensor& video_flow) const { return forward(video_flow, 0); }
  // Of frame_batch steps in time at once, which takes less memory beside the features and gives the same; 0: of all.
  // All go together too where gradients are asked for, which keep everything anyway, and in training, whose norms look
  // at all of them.
  Tensors forward(const Tensor& video_flow, int64_t frame_batch) const;

 private:
  Tensor patches(Tensor video_flow) const;  // one picture for each step in time
};

// The motion-guidance fuser: an adaptive norm whose scale and shift come from the features at the same place and the
// steps in time before and after it. Both are zero at first, so that a new one changes nothing.
struct MGF : nn::Module {
  nn::Conv2d flow_gamma_spatial;
  nn::Conv1d flow_gamma_temporal;
  nn::Conv2d flow_beta_spatial;
  nn::Conv1d flow_beta_temporal;
  nn::GroupNorm flow_cond_norm;
  SF_MODULE(MGF, flow_gamma_spatial, flow_gamma_temporal, flow_beta_spatial, flow_beta_temporal, flow_cond_norm)
  // ValueError where the groups of the norm do not divide out_channels.
  MGF(int64_t flow_channels, int64_t out_channels);
  // hidden_states[B, T * H * W, out_channels]: a video's tokens, time after time and row after row;
  // features[B, T, flow_channels, H, W], or one video's for the whole batch -> as hidden_states.
  Tensor forward(const Tensor& hidden_states, const Tensor& features) const;
};

}  // namespace sf::models
