// What pictures are enlarged with: a network from pictures [B, C, H, W] in [0, 1] to larger ones, whose pixels depend
// on those near them alone.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::models {

class UpscalingModel {
 public:
  virtual ~UpscalingModel() = default;
  virtual int64_t upscale_factor() const = 0;
  virtual int64_t input_channels() const = 0;
  virtual int64_t output_channels() const = 0;
  virtual int64_t multiple() const { return 1; }  // of pixels in each direction that it wants; others are padded
  // Pixels of the input, at least, on each side of one that change it.
  virtual int64_t reach() const = 0;
  virtual Tensor upscale(const Tensor& x) const = 0;  // forward, by way of hooks
};

}  // namespace sf::models
