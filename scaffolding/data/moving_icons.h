// MovingIcons: clips composed from captioned icons, as training pairs of a model that is steered by trajectories: an
// icon of any size moves along a smooth way over a plain background or one that goes from a colour to another.
// Thread-safe, as every Dataset.
#pragma once
#include <memory>
#include <vector>

#include "scaffolding/data/icon_dataset.h"

namespace sf::data {

struct MovingIconOptions {
  int64_t num_frames = 17;
  int64_t size = 64;                              // frames are size x size pixels
  int64_t smallest_icon = 20, largest_icon = 28;  // sides in pixels
  int64_t margin = 10;  // pixels between a centre and the edges at least; what lies outside of a frame is cut off
  double gradient_probability = 0.15;  // that the background goes from a named colour to another, from the top down; a
                                       // plain one is named with the icons' background_probability, else it is white
};

// Where an icon's centre, the mean of its pixels by their opacity, is in a frame.
struct IconPlace {
  int64_t x = 0, y = 0;  // pixels to the right and down
  bool operator==(const IconPlace&) const = default;
};

class MovingIcons final : public Dataset {
 public:
  // ValueError for sizes that cannot be, and probabilities that are none.
  explicit MovingIcons(std::shared_ptr<const IconDataset> icons, MovingIconOptions options = {});

  int64_t size() const override { return icons_->size(); }
  // image: uint8 [3, num_frames, size, size]. caption: "rocket, noto", "rocket, noto, on a blue background" or, for two
  // colours, "rocket, noto, on a blue to pink background". target: float32 [1, num_frames, 2], the one trajectory: x
  // and y of the centre in each frame, whole pixels; where frames are as many as points, a trajectory moves by just
  // these.
  Sample get(int64_t index, SampleRandom& random) const override;
  std::string sample_name(int64_t index) const override { return icons_->sample_name(index); }
  IconGround ground(SampleRandom& random) const;  // as get() draws it

  // A clip uint8 [3, places, size, size] of the icon with sides of `side` pixels at these places, over colours from the
  // top to the bottom.
  Tensor clip(int64_t index, int64_t side, const std::vector<IconPlace>& places, const transforms::Colour& top,
              const transforms::Colour& bottom) const;

  std::vector<std::string> texts() const;  // every prompt part once: what a tokenizer is trained on
  const IconDataset& icons() const { return *icons_; }
  const MovingIconOptions& options() const { return options_; }

 private:
  std::shared_ptr<const IconDataset> icons_;
  MovingIconOptions options_;
};

}  // namespace sf::data
