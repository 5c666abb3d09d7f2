// Transforms of pictures, as torchvision's: pure functions of an image [C, H, W] and the sample's random numbers.
// uint8 images pass through with their pixels side by side in memory; to_float makes them contiguous float32 in [0, 1].
// Immutable after construction: one transform serves all workers. Impossible arguments are a ValueError at
// construction, an image that a transform cannot take one when it is applied.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "scaffolding/core/value.h"
#include "scaffolding/data/resize.h"
#include "scaffolding/data/sample_random.h"

namespace sf::data {

class Transform {
 public:
  virtual ~Transform() = default;
  virtual Tensor operator()(const Tensor& image, SampleRandom& random) const = 0;
  virtual std::string str() const = 0;  // how it is written in Python
};
using TransformPtr = std::shared_ptr<const Transform>;

// Sizes that share an area, by aspect ratio (NovelAI's "aspect ratio bucketing").
class AspectBuckets {
 public:
  struct Size {
    int64_t height, width;
  };
  // Both sides are multiples of `multiple_of`, height * width <= area,
  // and the longer side at most max_aspect times the other.
  AspectBuckets(int64_t area, int64_t multiple_of = 64, double max_aspect = 2);
  const std::vector<Size>& sizes() const { return sizes_; }  // by aspect ratio, tall first
  size_t nearest(int64_t height, int64_t width) const;       // the bucket of the closest aspect ratio

 private:
  std::vector<Size> sizes_;
};

namespace transforms {

using Colour = std::array<uint8_t, 3>;

// In order; a to_float before a normalize becomes one pass.
TransformPtr compose(std::vector<TransformPtr> parts);
// size: {n} makes the shorter side n and keeps the aspect ratio (torchvision's rounding), {height, width} is exact.
// Pillow's arithmetic for uint8, interpolate's with antialias for float images (bilinear and bicubic only).
TransformPtr resize(const Shape& size, Filter filter = Filter::Bilinear);
TransformPtr center_crop(const Shape& size);  // {n} is {n, n}
TransformPtr random_crop(const Shape& size, int64_t padding = 0,
                         double fill = 0);  // after a border of `padding` pixels
TransformPtr random_resized_crop(const Shape& size, std::array<double, 2> scale = {0.08, 1.0},  // torchvision's
                                 std::array<double, 2> ratio = {3. / 4, 4. / 3}, Filter filter = Filter::Bilinear);
TransformPtr random_horizontal_flip(double p = 0.5);
TransformPtr random_vertical_flip(double p = 0.5);
TransformPtr pad(const Shape& padding,
                 double fill = 0);  // {all}, {left/right, top/bottom} or {left, top, right, bottom}
TransformPtr to_float();            // uint8 [0, 255] to float32 [0, 1]
// (x - mean[c]) / std[c]; one number serves all channels
TransformPtr normalize(const Floats& mean, const Floats& std);
// Factors drawn from [low, high] for brightness, contrast and saturation, and a turn of the hue as a share of the
// circle from [low, high] within [-0.5, 0.5], applied in an order that is drawn too: torchvision's arithmetic, of uint8
// and of float images in [0, 1]. {1, 1} and a hue of {0, 0} leave out a change. Alpha stays as it is; grey images have
// no saturation and no hue.
struct ColourRanges {
  std::array<double, 2> brightness{1, 1}, contrast{1, 1}, saturation{1, 1}, hue{0, 0};
};
TransformPtr color_jitter(const ColourRanges& ranges);
// Grey with 1 or 3 equal channels, 0.2989 R + 0.587 G + 0.114 B; with probability p. Alpha stays.
TransformPtr grayscale(int64_t channels = 1, double p = 1);
// An image with alpha (LA, RGBA) over a colour, a random one of each sample where none is given.
// Images without are refused.
TransformPtr composite(std::optional<Colour> colour);
// Resized to cover the bucket of its aspect ratio and cropped to it, in the middle or anywhere.
TransformPtr to_bucket(const AspectBuckets& buckets, bool random = false, Filter filter = Filter::Bicubic);

}  // namespace transforms
}  // namespace sf::data
