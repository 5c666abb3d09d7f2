#include "scaffolding/data/moving_icons.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/data/resize.h"
#include "scaffolding/ops/ops.h"

namespace sf::data {

namespace {

constexpr int64_t kMostFrames = 1 << 16, kLargestFrame = 4096;

// A drawing uint8 [4, side, side] with its centre in it.
struct Drawn {
  Tensor pixels;
  double x = 0, y = 0;
};

Drawn drawn(const Tensor& drawing, int64_t side) {
  Drawn out;
  out.pixels = resize(drawing, side, side, Filter::Lanczos).contiguous();
  const auto* alpha = out.pixels.data<uint8_t>() + 3 * side * side;
  double sum = 0, x = 0, y = 0;
  for (int64_t row = 0; row < side; ++row)
    for (int64_t column = 0; column < side; ++column) {
      const double a = alpha[row * side + column];
      sum += a, x += a * (double(column) + 0.5), y += a * (double(row) + 0.5);
    }
  out.x = sum > 0 ? x / sum : double(side) / 2;
  out.y = sum > 0 ? y / sum : double(side) / 2;
  return out;
}

double between(double a, double b, double c, double d, double t) {  // Catmull-Rom from b to c
  return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

// A way through 2 to 4 points: of 2 a straight line, else a curve. Its pixels in each frame.
std::vector<IconPlace> random_way(int64_t num_frames, int64_t size, int64_t margin, SampleRandom& random) {
  const int64_t count = 2 + random.below(3);
  const auto least = double(margin), most = double(size - margin);
  std::vector<std::array<double, 2>> points;
  for (int64_t i = 0; i < count; ++i) {
    const double x = random.uniform(), y = random.uniform();
    points.push_back({least + x * (most - least), least + y * (most - least)});
  }
  auto point = [&](int64_t i) { return points[size_t(std::clamp<int64_t>(i, 0, count - 1))]; };
  std::vector<IconPlace> way;
  for (int64_t frame = 0; frame < num_frames; ++frame) {
    const double along = num_frames > 1 ? double(frame) / double(num_frames - 1) * double(count - 1) : 0;
    const int64_t i = std::min(int64_t(along), count - 2);
    const double t = along - double(i);
    auto at = [&](size_t axis) {
      const double place = count == 2
                               ? point(0)[axis] + t * (point(1)[axis] - point(0)[axis])
                               : between(point(i - 1)[axis], point(i)[axis], point(i + 1)[axis], point(i + 2)[axis], t);
      return std::min(int64_t(std::clamp(place, least, most)), size - 1);
    };
    way.push_back({at(0), at(1)});
  }
  return way;
}

// Over a background [3, size, size], into one frame of a clip whose channels are channel_step apart.
void paste(const Drawn& icon, int64_t side, const IconPlace& place, int64_t size, int64_t channel_step,
           uint8_t* frame) {
  const auto left = int64_t(std::floor(double(place.x) + 0.5 - icon.x + 0.5));
  const auto top = int64_t(std::floor(double(place.y) + 0.5 - icon.y + 0.5));
  const auto* rgba = icon.pixels.data<uint8_t>();
  const int64_t area = side * side;
  for (int64_t y = std::max<int64_t>(0, -top); y < std::min(side, size - top); ++y)
    for (int64_t x = std::max<int64_t>(0, -left); x < std::min(side, size - left); ++x) {
      const int alpha = rgba[3 * area + y * side + x];
      for (int64_t c = 0; c < 3; ++c) {
        uint8_t& to = frame[c * channel_step + (top + y) * size + left + x];
        to = uint8_t((rgba[c * area + y * side + x] * alpha + to * (255 - alpha) + 127) / 255);
      }
    }
}

Tensor composed(const Drawn& icon, int64_t side, const std::vector<IconPlace>& places, int64_t size,
                const transforms::Colour& top, const transforms::Colour& bottom) {
  const auto frames = int64_t(places.size());
  Tensor clip = empty({3, frames, size, size}, kUInt8, Device::CPU);
  auto* to = clip.data<uint8_t>();
  const int64_t area = size * size;
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t f = 0; f < frames; ++f)
      for (int64_t y = 0; y < size; ++y) {
        const double down = size > 1 ? double(y) / double(size - 1) : 0;
        const double level = double(top[size_t(c)]) + down * (double(bottom[size_t(c)]) - double(top[size_t(c)]));
        std::fill_n(to + (c * frames + f) * area + y * size, size, uint8_t(std::lround(level)));
      }
  for (int64_t f = 0; f < frames; ++f) paste(icon, side, places[size_t(f)], size, frames * area, to + f * area);
  return clip;
}

bool is_probability(double p) { return p >= 0 && p <= 1; }

}  // namespace

MovingIcons::MovingIcons(std::shared_ptr<const IconDataset> icons, MovingIconOptions options)
    : icons_(std::move(icons)), options_(options) {
  const auto& o = options_;
  SF_CHECK(icons_, "MovingIcons: needs icons");
  SF_CHECK(o.num_frames >= 1 && o.num_frames <= kMostFrames, "MovingIcons: num_frames must be 1 to ", kMostFrames,
           ", got ", o.num_frames);
  SF_CHECK(o.size >= 1 && o.size <= kLargestFrame, "MovingIcons: size must be 1 to ", kLargestFrame, ", got ", o.size);
  SF_CHECK(o.smallest_icon >= 1 && o.smallest_icon <= o.largest_icon && o.largest_icon <= o.size,
           "MovingIcons: icons must be 1 to size = ", o.size, " pixels wide, got ", o.smallest_icon, " to ",
           o.largest_icon);
  SF_CHECK(o.margin >= 0 && 2 * o.margin < o.size,
           "MovingIcons: margin must be 0 or above and below half of size = ", o.size, ", got ", o.margin);
  SF_CHECK(is_probability(o.gradient_probability), "MovingIcons: gradient_probability must be 0 to 1, got ",
           o.gradient_probability);
  SF_CHECK(o.gradient_probability + icons_->options().background_probability <= 1,
           "MovingIcons: gradient_probability and the icons' background_probability must be 1 at most together, got ",
           o.gradient_probability, " and ", icons_->options().background_probability);
}

IconGround MovingIcons::ground(SampleRandom& random) const {
  return random_ground(icons_->options().background_probability, options_.gradient_probability, random);
}

Sample MovingIcons::get(int64_t index, SampleRandom& random) const {
  const auto& o = options_;
  const IconGround under = ground(random);
  const int64_t side = o.smallest_icon + random.below(o.largest_icon - o.smallest_icon + 1);
  const Drawn icon = drawn(icons_->drawing(index), side);
  const auto way = random_way(o.num_frames, o.size, o.margin, random);
  Sample sample;
  sample.image = composed(icon, side, way, o.size, under.top, under.bottom);
  sample.target = empty({1, o.num_frames, 2}, kFloat32, Device::CPU);
  auto* point = sample.target.data<float>();
  for (const IconPlace& place : way) *point++ = float(place.x), *point++ = float(place.y);
  sample.caption = icons_->prompt(index, under.name, random);
  sample.name = sample_name(index);
  sample.index = index;
  return sample;
}

std::vector<std::string> MovingIcons::texts() const {
  std::vector<std::string> all = icons_->texts();
  all.push_back(two_colours("white", "black"));
  return all;
}

Tensor MovingIcons::clip(int64_t index, int64_t side, const std::vector<IconPlace>& places,
                         const transforms::Colour& top, const transforms::Colour& bottom) const {
  SF_CHECK(!places.empty() && int64_t(places.size()) <= kMostFrames, "MovingIcons: a clip has 1 to ", kMostFrames,
           " frames, got ", places.size());
  SF_CHECK(side >= 1 && side <= kLargestFrame, "MovingIcons: an icon must be 1 to ", kLargestFrame,
           " pixels wide, got ", side);
  for (const IconPlace& place : places)
    SF_CHECK(place.x >= 0 && place.y >= 0 && place.x < options_.size && place.y < options_.size,
             "MovingIcons: places must be in a frame of ", options_.size, "x", options_.size, ", got (", place.x, ", ",
             place.y, ")");
  return composed(drawn(icons_->drawing(index), side), side, places, options_.size, top, bottom);
}

}  // namespace sf::data
