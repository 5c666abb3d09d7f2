#include "scaffolding/models/parts/seamless.h"

#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/resnet.h"

namespace sf::models {

SeamlessAxes seamless_axes(std::string_view name) {
  if (name.empty()) return {};
  SF_CHECK(name == "x" || name == "y" || name == "xy", "seamless tiling: axes must be x, y or xy, got '", name, "'");
  return {name != "y", name != "x"};
}

SeamlessAxes seamless_axes(const nn::Conv2d& conv) {
  const bool both = conv.padding_mode == "circular";
  return {both || conv.padding_mode == "circular_x", both || conv.padding_mode == "circular_y"};
}

void set_seamless(nn::Module& model, SeamlessAxes axes) {
  const std::string mode = axes.x && axes.y ? "circular" : axes.x ? "circular_x" : axes.y ? "circular_y" : "zeros";
  auto set = [&](std::string& of) {
    if (of == "zeros" || of.starts_with("circular")) of = mode;
  };
  for (auto& m : nn::named_modules(model)) {
    if (auto* conv = dynamic_cast<nn::Conv2d*>(m.module)) set(conv->padding_mode);
    if (auto* half = dynamic_cast<Downsample2D*>(m.module)) set(half->padding_mode);
  }
}

}  // namespace sf::models
