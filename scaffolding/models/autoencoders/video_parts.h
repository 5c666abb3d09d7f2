// VideoPart: what an autoencoder that decodes a video in parts gives, one after the other, each number once.
#pragma once
#include <functional>

#include "scaffolding/core/tensor.h"

namespace sf::models {

struct VideoPart {
  Tensor
      values;  // [b, C, t, h, W], of the samples and frames from these places on. Parts of the same samples and frames
  int64_t sample = 0, frame = 0;  // are rows of theirs, from the top down.
  double done = 1;                // the share of everything that is decoded with this part
};
using TakeVideoPart = std::function<void(const VideoPart& part)>;

}  // namespace sf::models
