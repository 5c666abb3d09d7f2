#include "apps/cli/animations.h"

#include "scaffolding/core/error.h"
#include "scaffolding/io/pictures/animation.h"

namespace sf::cli {

void check_animation(const char* option, const std::string& path) {
  auto format = io::animation_format(path);
  SF_CHECK_AS(NotSupported, io::can_write(format), option, ": this build cannot write ",
              format == io::AnimationFormat::GIF ? "GIF" : "animated WebP", "; use ",
              format == io::AnimationFormat::GIF ? ".webp, or build with giflib (Debian: libgif-dev)"
                                                 : ".gif, or build with libwebpmux");
}

void save_forming(const std::string& path, Tensors steps, const Tensor& picture) {
  if (!steps.empty()) steps.pop_back();  // the last step's picture is the picture
  steps.push_back(picture);
  io::AnimationOptions options;
  options.durations.assign(steps.size(), 100);
  options.durations.back() = 1500;
  io::save_animation(path, steps, options);
}

}  // namespace sf::cli
