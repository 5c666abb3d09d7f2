#include "scaffolding/data/icon_canvas.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "scaffolding/core/error.h"

namespace sf::data {

namespace {

constexpr int64_t kLargest = 4096;
constexpr uint8_t kSeen = 12;  // of 255

// Bilinear; what lies outside is transparent.
std::array<float, 4> at(const CutIcon& icon, float x, float y) {
  std::array<float, 4> out{};
  const float left = std::floor(x - 0.5f), top = std::floor(y - 0.5f);
  const float fx = x - 0.5f - left, fy = y - 0.5f - top;
  const auto x0 = int64_t(left), y0 = int64_t(top);
  if (x0 >= 0 && y0 >= 0 && x0 + 1 < icon.width && y0 + 1 < icon.height) {
    const float* a = icon.rgba.data() + 4 * (y0 * icon.width + x0);
    const float* b = a + 4 * icon.width;
    for (size_t c = 0; c < 4; ++c)
      out[c] = (1 - fy) * ((1 - fx) * a[c] + fx * a[c + 4]) + fy * ((1 - fx) * b[c] + fx * b[c + 4]);
    return out;
  }
  for (int64_t dy = 0; dy < 2; ++dy)
    for (int64_t dx = 0; dx < 2; ++dx) {
      const int64_t px = x0 + dx, py = y0 + dy;
      if (px < 0 || py < 0 || px >= icon.width || py >= icon.height) continue;
      const float weight = (dx ? fx : 1 - fx) * (dy ? fy : 1 - fy);
      const float* from = icon.rgba.data() + 4 * (py * icon.width + px);
      for (size_t c = 0; c < 4; ++c) out[c] += weight * from[c];
    }
  return out;
}

}  // namespace

CutIcon cut_icon(const Tensor& drawing, bool whole) {
  SF_CHECK(drawing.defined() && drawing.ndim() == 3 && drawing.size(0) == 4 && drawing.dtype() == kUInt8,
           "cut_icon: a drawing must be uint8 [4, H, W], got ", drawing.defined() ? drawing.shape() : Shape{});
  const Tensor planes = drawing.contiguous();
  const int64_t height = planes.size(1), width = planes.size(2), area = height * width;
  const auto* p = planes.data<uint8_t>();
  int64_t left = width, right = 0, top = height, bottom = 0;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      if (whole || p[3 * area + y * width + x] >= kSeen) {
        left = std::min(left, x), right = std::max(right, x + 1);
        top = std::min(top, y), bottom = std::max(bottom, y + 1);
      }
  CutIcon out;
  if (left >= right) return out;
  out.width = right - left, out.height = bottom - top;
  out.left = left, out.top = top;
  out.rgba.resize(size_t(4 * out.width * out.height));
  float* to = out.rgba.data();
  for (int64_t y = top; y < bottom; ++y)
    for (int64_t x = left; x < right; ++x) {
      const int64_t i = y * width + x;
      const float alpha = float(p[3 * area + i]);
      for (int64_t c = 0; c < 3; ++c) *to++ = float(p[c * area + i]) * alpha / 255;
      *to++ = alpha;
    }
  return out;
}

IconCanvas::IconCanvas(int64_t size, const IconGround& ground) : size_(size) {
  SF_CHECK(size >= 1 && size <= kLargest, "IconCanvas: size must be 1 to ", kLargest, ", got ", size);
  rgb_.reserve(size_t(3 * size * size));
  for (int64_t y = 0; y < size; ++y) {
    const double down = size > 1 ? double(y) / double(size - 1) : 0;
    for (int64_t x = 0; x < size; ++x)
      for (size_t c = 0; c < 3; ++c)
        rgb_.push_back(float(double(ground.top[c]) + down * (double(ground.bottom[c]) - double(ground.top[c]))));
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
  if (exact && !pose.mirrored && left == std::floor(left) && top == std::floor(top)) {
    const auto x0 = int64_t(left), y0 = int64_t(top);
    for (int64_t y = std::max<int64_t>(0, y0); y < std::min(size_, y0 + icon.height); ++y)
      for (int64_t x = std::max<int64_t>(0, x0); x < std::min(size_, x0 + icon.width); ++x) {
        const float* from = icon.rgba.data() + 4 * ((y - y0) * icon.width + x - x0);
        float* to = rgb_.data() + 3 * (y * size_ + x);
        for (size_t c = 0; c < 3; ++c) to[c] = from[c] + to[c] * (1 - from[3] / 255);
      }
    return;
  }
  for (int64_t y = first(pose.y - half_height); y < last(pose.y + half_height); ++y)
    for (int64_t x = first(pose.x - half_width); x < last(pose.x + half_width); ++x) {
      std::array<float, 4> sum{};
      for (int sy = 0; sy < samples; ++sy)
        for (int sx = 0; sx < samples; ++sx) {
          const double dx = double(x) + (sx + 0.5) / samples - pose.x, dy = double(y) + (sy + 0.5) / samples - pose.y;
          double u = (cosine * dx + sine * dy) / pose.scale, v = (cosine * dy - sine * dx) / pose.scale;
          if (pose.mirrored) u = -u;
          const auto value = at(icon, float(u + 0.5 * double(icon.width)), float(v + 0.5 * double(icon.height)));
          for (size_t c = 0; c < 4; ++c) sum[c] += value[c];
        }
      const float part = 1 / float(samples * samples);
      if (sum[3] == 0) continue;
      float* to = rgb_.data() + 3 * (y * size_ + x);
      for (size_t c = 0; c < 3; ++c) to[c] = sum[c] * part + to[c] * (1 - sum[3] * part / 255);
    }
}

Tensor IconCanvas::picture() const {
  Tensor out = empty({3, size_, size_}, kUInt8, Device::CPU);
  auto* to = out.data<uint8_t>();
  const int64_t area = size_ * size_;
  for (int64_t i = 0; i < area; ++i)
    for (int64_t c = 0; c < 3; ++c)
      to[c * area + i] = uint8_t(std::lround(std::clamp(rgb_[size_t(3 * i + c)], 0.f, 255.f)));
  return out;
}

}  // namespace sf::data
