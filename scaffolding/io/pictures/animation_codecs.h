// What animation.cpp asks of each format's library: animation_gif.cpp, animation_webp.cpp. Not public; stateless.
#pragma once
#include <memory>

#include "scaffolding/io/pictures/animation.h"

namespace sf::io {

// pixels: uint8 [H, W, 3], contiguous, one tensor for each picture. durations: milliseconds of each.
std::string gif_animation(const Tensors& pixels, const AnimationOptions& options);
std::string webp_animation(const Tensors& pixels, const AnimationOptions& options);

}  // namespace sf::io
