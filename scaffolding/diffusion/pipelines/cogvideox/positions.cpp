#include "scaffolding/diffusion/pipelines/cogvideox/positions.h"

#include <cmath>

#include "scaffolding/models/parts/video_positions.h"

namespace sf::diffusion {

// The part of the trained grid that a grid of this size shows, in its middle: diffusers' crop for positions of 1.0.
static std::array<double, 4> crop_of(int64_t height, int64_t width, int64_t base_height, int64_t base_width) {
  const double r = double(height) / double(width);
  int64_t h = base_height, w = base_width;
  if (r > double(base_height) / double(base_width))
    w = std::llrint(double(base_height) / double(height) * double(width));
  else h = std::llrint(double(base_width) / double(width) * double(height));
  const int64_t top = std::llrint(double(base_height - h) / 2), left = std::llrint(double(base_width - w) / 2);
  return {double(top), double(left), double(top + h), double(left + w)};
}

Tensor cogvideox_positions(const CogVideoXPatches& c, int64_t frames, int64_t height, int64_t width, Device device) {
  const int64_t p = c.patch_size, pt = c.patch_size_t;
  const models::VideoGrid size{pt ? frames / pt : frames, height / p, width / p};
  models::RotaryGrid grid{.size = size};
  if (!pt) grid.crop = crop_of(size.height, size.width, c.sample_height / p, c.sample_width / p);
  return models::rotary_positions_3d(c.attention_head_dim, grid, device);
}

}  // namespace sf::diffusion
