// What animation.cpp and VideoWriter ask of each format's library: animation_gif.cpp, animation_webp.cpp. Not public.
// An encoder is used from one thread.
#pragma once
#include <memory>

#include "scaffolding/io/pictures/animation.h"

namespace sf::io {

// Takes pictures one by one and keeps what they are encoded to, not the pictures.
class AnimationEncoder {
 public:
  virtual ~AnimationEncoder() = default;
  virtual void add(const Tensor& pixels, int64_t milliseconds) = 0;  // uint8 [height, width, 3], contiguous
  virtual std::string finish() = 0;                                  // the file; once, after the last picture
};
// Of options, fps and durations are the caller's affair.
std::unique_ptr<AnimationEncoder> gif_encoder(int64_t height, int64_t width, const AnimationOptions& options);
// Pictures that differ little are shown as one, for longer, unless every_picture, which makes larger files.
std::unique_ptr<AnimationEncoder> webp_encoder(int64_t height, int64_t width, const AnimationOptions& options,
                                               bool every_picture = false);

int64_t longest_side(AnimationFormat format);  // in pixels
void check_fps(AnimationFormat format, const char* op, double fps);
// How long picture `index` is shown. The places of pictures on the format's clock are rounded, not their durations, so
// that the whole keeps its length.
int64_t milliseconds_of(AnimationFormat format, double fps, int64_t index);

}  // namespace sf::io
