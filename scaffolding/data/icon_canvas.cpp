#include "scaffolding/data/icon_canvas.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/data/icon_kernel.h"

namespace sf::data {

constinit KernelTable<WeightPixels> icon_weight{"icon_weight"};
constinit KernelTable<PutPixels> icon_put{"icon_put"};
constinit KernelTable<CanvasPixels> icon_canvas_bytes{"icon_canvas_bytes"};

namespace {

constexpr int64_t kLargest = 4096;
constexpr uint8_t kSeen = 12;  // of 255

}  // namespace

CutIcon cut_icon(const Tensor& drawing, bool whole) {
  SF_CHECK(drawing.defined() && drawing.ndim() == 3 && drawing.size(0) == 4 && drawing.dtype() == kUInt8,
           "cut_icon: a drawing must be uint8 [4, H, W], got ", drawing.defined() ? drawing.shape() : Shape{});
  const Tensor pixels = drawing.permute({1, 2, 0}).contiguous();
  const int64_t height = pixels.size(0), width = pixels.size(1);
  const auto* p = pixels.data<uint8_t>();
  int64_t left = 0, right = width, top = 0, bottom = height;
  if (!whole) {
    const auto seen = [&](int64_t x, int64_t y) { return p[4 * (y * width + x) + 3] >= kSeen; };
    left = width, right = 0, top = height, bottom = 0;
    for (int64_t y = 0; y < height; ++y) {
      int64_t first = 0, last = width;
      while (first < width && !seen(first, y)) ++first;
      if (first == width) continue;
      while (!seen(last - 1, y)) --last;
      left = std::min(left, first), right = std::max(right, last);
      top = std::min(top, y), bottom = y + 1;
    }
  }
  CutIcon out;
  if (left >= right || top >= bottom) return out;
  out.width = right - left, out.height = bottom - top;
  out.left = left, out.top = top;
  out.rgba.resize(size_t(4 * out.width * out.height));
  for (int64_t y = top; y < bottom; ++y) {
    const WeightPixels row{p + 4 * (y * width + left), out.rgba.data() + 4 * (y - top) * out.width, out.width};
    icon_weight.find(Device::CPU, row)(row);
  }
  return out;
}

IconCanvas::IconCanvas(int64_t size, const IconGround& ground) : size_(size) {
  SF_CHECK(size >= 1 && size <= kLargest, "IconCanvas: size must be 1 to ", kLargest, ", got ", size);
  rgb_.resize(size_t(4 * size * size));
  for (int64_t y = 0; y < size; ++y) {
    const double down = size > 1 ? double(y) / double(size - 1) : 0;
    std::array<float, 4> colour{};
    for (size_t c = 0; c < 3; ++c)
      colour[c] = float(double(ground.top[c]) + down * (double(ground.bottom[c]) - double(ground.top[c])));
    for (int64_t x = 0; x < size; ++x) std::copy_n(colour.data(), 4, rgb_.data() + 4 * (y * size + x));
  }
}

void IconCanvas::put(const CutIcon& icon, const IconPose& pose) {
  SF_CHECK(pose.scale > 0 && pose.scale < 1e3, "IconCanvas: scale must be above 0 and below 1000, got ", pose.scale);
  if (icon.width == 0) return;
  const double cosine = std::cos(pose.angle), sine = std::sin(pose.angle);
  const double half_width =
                   0.5 * pose.scale * (double(icon.width) * std::abs(cosine) + double(icon.height) * std::abs(sine)),
               half_height =
                   0.5 * pose.scale * (double(icon.width) * std::abs(sine) + double(icon.height) * std::abs(cosine));
  const auto first = [](double v) { return std::max<int64_t>(0, int64_t(std::floor(v)) - 1); };
  const auto last = [&](double v) { return std::min<int64_t>(size_, int64_t(std::ceil(v)) + 1); };
  // As many samples of a pixel as pixels of the drawing fall into it; where it is only moved by whole ones, one.
  const bool exact = pose.angle == 0 && pose.scale == 1;
  const int samples = exact ? 1 : std::clamp(int(std::ceil(1 / pose.scale)), 2, 8);
  const double left = pose.x - 0.5 * double(icon.width), top = pose.y - 0.5 * double(icon.height);
  PutPixels work{.icon = icon.rgba.data(),
                 .width = icon.width,
                 .height = icon.height,
                 .canvas = rgb_.data(),
                 .size = size_,
                 .left = first(pose.x - half_width),
                 .right = last(pose.x + half_width),
                 .top = first(pose.y - half_height),
                 .bottom = last(pose.y + half_height),
                 .x = pose.x,
                 .y = pose.y,
                 .scale = pose.scale,
                 .cosine = cosine,
                 .sine = sine,
                 .mirrored = pose.mirrored,
                 .samples = samples};
  if (exact && !pose.mirrored && left == std::floor(left) && top == std::floor(top)) {
    work.samples = 0;
    work.x = left, work.y = top;
    work.left = std::max<int64_t>(0, int64_t(left)), work.right = std::min(size_, int64_t(left) + icon.width);
    work.top = std::max<int64_t>(0, int64_t(top)), work.bottom = std::min(size_, int64_t(top) + icon.height);
  }
  icon_put.find(Device::CPU, work)(work);
}

Tensor IconCanvas::picture() const {
  Tensor out = empty({size_, size_, 3}, kUInt8, Device::CPU);
  const CanvasPixels work{rgb_.data(), out.data<uint8_t>(), size_ * size_};
  icon_canvas_bytes.find(Device::CPU, work)(work);
  return out.permute({2, 0, 1});
}

}  // namespace sf::data
