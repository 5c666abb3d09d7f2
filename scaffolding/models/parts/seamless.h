// Networks whose pictures can be laid side by side without a seam: their convolutions see the other side of a picture
// beyond its border, and not zeros.
#pragma once
#include <string_view>

#include "scaffolding/nn/conv.h"

namespace sf::models {

struct SeamlessAxes {
  bool x = false, y = false;  // left and right meet; top and bottom
  bool any() const { return x || y; }
};
SeamlessAxes seamless_axes(std::string_view name);  // "x", "y" or "xy"; "" for none. ValueError otherwise
// Of a convolution as set_seamless left it.
SeamlessAxes seamless_axes(const nn::Conv2d& conv);

// Of every 2-D convolution below `model`, and of the row and column that an autoencoder pads before it halves a
// picture, which diffusers' recipe (padding_mode = "circular" of each Conv2d) leaves zero. None: zeros again. Paddings
// of other kinds stay as they are.
void set_seamless(nn::Module& model, SeamlessAxes axes);

}  // namespace sf::models
