// Convolutions over the frames of videos [B, C, T, H, W] that see the first and the last frame again beyond them, alone
// or behind a norm. They are at their best between channels-last videos.
#pragma once
#include "scaffolding/nn/conv.h"

namespace sf::models {

// How often the first frame comes again before a video, and the last one behind it.
struct FramesAround {
  int64_t before = 0, behind = 0;
};

// conv of x with these frames, whose own padding in time must be 0, plus a residual of the result's shape: in one where
// neither hooks nor Python look at the convolution. A video that is moved in is freed once read.
Tensor conv_with_frames(const nn::Conv3d& conv, Tensor x, FramesAround around, const Tensor& residual = {});

// A root-mean-square norm over the channels, scaled by 1 + scale and shifted, [B, C] or both absent.
struct ChannelNorm {
  double eps;
  Tensor scale, shift;
};
Tensor norm_silu(const ChannelNorm& norm, const Tensor& x);
// conv_with_frames of norm_silu(norm, x): frames, norm and, where a convolution reflects pictures, their borders in one
// pass over memory.
Tensor norm_silu_conv(const ChannelNorm& norm, const nn::Conv3d& conv, Tensor x, FramesAround around,
                      const Tensor& residual = {});

}  // namespace sf::models
