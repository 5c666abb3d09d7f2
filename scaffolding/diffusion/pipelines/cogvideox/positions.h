// The positions of CogVideoX's tokens as angles, for clips of any size, as diffusers' pipeline computes them.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::diffusion {

// Fields of a transformer's config.
struct CogVideoXPatches {
  int64_t patch_size = 2, patch_size_t = 0;  // 0: a patch is of one frame
  int64_t sample_height = 60, sample_width = 90, attention_head_dim = 64;
};

// image_rotary_emb [2, N, attention_head_dim] of latents of so many frames, rows and columns.
Tensor cogvideox_positions(const CogVideoXPatches& patches, int64_t frames, int64_t height, int64_t width,
                           Device device = {});

}  // namespace sf::diffusion
