// Positions of a video's tokens, which are patches frame by frame and row by row: added to them as sines and cosines,
// or as angles that queries and keys are turned by.
#pragma once
#include <array>
#include <optional>

#include "scaffolding/core/tensor.h"

namespace sf::models {

struct VideoGrid {
  int64_t frames = 1, height = 1, width = 1;  // in tokens
};

// Sines and cosines of places, [frames, height * width, embed_dim] in float32, on this device or else the default one:
// a quarter of the channels tells the frame, three eighths the column, the rest the row. Places are divided by the
// scales. As diffusers' get_3d_sincos_pos_embed; ValueError unless 16 divides embed_dim.
Tensor sincos_positions_3d(int64_t embed_dim, const VideoGrid& grid, double spatial_scale = 1,
                           double temporal_scale = 1, std::optional<Device> device = {});

struct RotaryGrid {
  VideoGrid size;
  // Which part of the picture that the network was trained on is shown: top, left, bottom and right on its own grid
  // (diffusers' crops_coords with grid_type "linspace", CogVideoX 1.0). Absent: tokens are one apart, from the top left
  // ("slice", 1.5).
  std::optional<std::array<double, 4>> crop = {};
  double theta = 10000;
};
// Cosines, then sines [2, frames * height * width, embed_dim] in float32, on this device or else the default one, as
// apply_rotary_emb takes them: a quarter of a head's channels is turned by the frame, three eighths by the row, the
// rest by the column. As diffusers' get_3d_rotary_pos_embed; ValueError unless 16 divides embed_dim.
Tensor rotary_positions_3d(int64_t embed_dim, const RotaryGrid& grid, std::optional<Device> device = {});

}  // namespace sf::models
