// Animations: GIF (giflib) and WebP (libwebpmux) files from pictures. Functions only: any thread may call them.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::io {

enum class AnimationFormat : uint8_t { GIF, WebP };

struct AnimationOptions {
  double fps =
      // pictures per second: above 0, to 100 with GIF, whose clock ticks in hundredths of a second,
      // and to 1000 with WebP
      10;
  int64_t loop = 0;                // how often it plays; 0: for ever
  std::vector<int64_t> durations;  // milliseconds of each picture, instead of fps
  int quality = 80;                // of WebP that is not lossless: 1 to 100
  bool lossless = false;           // WebP
  bool dither =
      // GIF: a picture of more than 256 colours gets the best 256 of its own, with their error spread over its pixels
      true;
};

// What a path's suffix says: .gif or .webp; ValueError for another.
AnimationFormat animation_format(const std::string& path);
// Whether this build can write it; else save_animation is NotSupported, and says what to install.
bool can_write(AnimationFormat format);

// frames: uint8 [C, H, W] of one size, 1 to 65536 of them; C is 1 or 3, any strides, on the CPU.
// ValueError and TypeError otherwise.
std::string encode_animation(const Tensors& frames, AnimationFormat format, const AnimationOptions& options = {});
// The format is that of the path's suffix. The file appears whole or not at all.
void save_animation(const std::string& path, const Tensors& frames, const AnimationOptions& options = {});

}  // namespace sf::io
