#include "scaffolding/train/evaluation/clip_tracker.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::train {

namespace {

constexpr int64_t kRing = 2;                  // pixels at the edges that show the background
constexpr double kBegins = 16, kStands = 48;  // levels of 255 between background and thing
constexpr double kWindow = 0.3;               // of the frame's smaller side, to each side of the middle
constexpr double kLeastArea = 6;              // pixels
constexpr int kFits = 6, kShifts = 12;        // at most

struct Sizes {
  int64_t frames, height, width;
};

Sizes check_clip(const Tensor& clip) {
  SF_CHECK(clip && clip.ndim() == 4 && clip.size(0) == 3 && clip.dtype() == kUInt8 && clip.numel() > 0 &&
               clip.device() == Device::CPU,
           "track: a clip must be uint8 [3, frames, height, width] on the CPU, got ", clip ? clip.shape() : Shape{});
  return {clip.size(1), clip.size(2), clip.size(3)};
}

// level = a + b x + c y
struct Plane {
  double a = 0, b = 0, c = 0;
  double at(double x, double y) const { return a + b * x + c * y; }
};
struct Point {
  double x, y, level;
};

// Least squares; flat where the points do not say more.
Plane fitted(const std::vector<Point>& points) {
  double n = 0, sx = 0, sy = 0, sl = 0;
  for (auto& p : points) n += 1, sx += p.x, sy += p.y, sl += p.level;
  if (n == 0) return {};
  const double mx = sx / n, my = sy / n, ml = sl / n;
  double xx = 0, xy = 0, yy = 0, xl = 0, yl = 0;
  for (auto& p : points) {
    const double x = p.x - mx, y = p.y - my, l = p.level - ml;
    xx += x * x, xy += x * y, yy += y * y, xl += x * l, yl += y * l;
  }
  const double determinant = xx * yy - xy * xy;
  if (determinant <= 1e-9 * (xx + yy) * (xx + yy)) return {ml, 0, 0};
  const double b = (xl * yy - yl * xy) / determinant, c = (yl * xx - xl * xy) / determinant;
  return {ml - b * mx - c * my, b, c};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + int64_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Through the edges of all frames: a thing that covers a part of them is left out, since it is far from the median line
// by line, which a first plane is put through.
Plane background(const uint8_t* channel, const Sizes& s) {
  std::vector<Point> points, rows;
  for (int64_t y = 0; y < s.height; ++y) {
    std::vector<double> row;
    for (int64_t f = 0; f < s.frames; ++f)
      for (int64_t x = 0; x < s.width; ++x) {
        const bool edge = y < kRing || x < kRing || y >= s.height - kRing || x >= s.width - kRing;
        if (!edge) continue;
        const double level = channel[(f * s.height + y) * s.width + x];
        points.push_back({double(x), double(y), level});
        row.push_back(level);
      }
    const double level = median(std::move(row));
    rows.push_back({0, double(y), level}), rows.push_back({double(s.width - 1), double(y), level});
  }
  Plane plane = fitted(rows);
  for (int i = 0; i < kFits; ++i) {
    std::vector<Point> near;
    for (auto& p : points)
      if (std::abs(p.level - plane.at(p.x, p.y)) < (i == 0 ? kStands : kBegins)) near.push_back(p);
    if (near.size() * 4 < points.size()) break;
    plane = fitted(near);
  }
  return plane;
}

// The middle of what stands out, by mean shift; {0, ...} where that is nothing.
struct Middle {
  double area = 0, x = 0, y = 0;
};
Middle middle_of(const float* opacity, const Sizes& s) {
  const double reach = kWindow * double(std::min(s.height, s.width));
  auto sum = [&](double cx, double cy, double within) {
    Middle m;
    for (int64_t y = 0; y < s.height; ++y)
      for (int64_t x = 0; x < s.width; ++x) {
        const double w = opacity[y * s.width + x];
        if (w == 0 || std::abs(double(x) - cx) > within || std::abs(double(y) - cy) > within) continue;
        m.area += w, m.x += w * double(x), m.y += w * double(y);
      }
    if (m.area > 0) m.x /= m.area, m.y /= m.area;
    return m;
  };
  Middle m = sum(0, 0, double(s.height + s.width));
  for (int i = 0; i < kShifts && m.area > 0; ++i) {
    const Middle next = sum(m.x, m.y, reach);
    if (next.area == 0) break;  // between things that are far from each other
    const bool stays = std::abs(next.x - m.x) < 0.01 && std::abs(next.y - m.y) < 0.01;
    m = next;
    if (stays) break;
  }
  return m;
}

TrackedFrame located(const float* opacity, const Sizes& s) {
  const Middle m = middle_of(opacity, s);
  TrackedFrame out{.x = double(s.width - 1) / 2, .y = double(s.height - 1) / 2};
  out.side = std::min(s.height, s.width) / 2;
  out.left = (s.width - out.side) / 2, out.top = (s.height - out.side) / 2;
  if (m.area < kLeastArea) return out;
  out.found = true, out.x = m.x, out.y = m.y;
  const double reach = kWindow * double(std::min(s.height, s.width));
  int64_t left = s.width, right = -1, top = s.height, bottom = -1;
  for (int64_t y = 0; y < s.height; ++y)
    for (int64_t x = 0; x < s.width; ++x) {
      if (opacity[y * s.width + x] < 0.5f || std::abs(double(x) - m.x) > reach || std::abs(double(y) - m.y) > reach)
        continue;
      left = std::min(left, x), right = std::max(right, x), top = std::min(top, y), bottom = std::max(bottom, y);
    }
  if (right < 0) return out;
  out.side = std::max(right - left, bottom - top) + 1;
  out.left = (left + right + 1 - out.side) / 2, out.top = (top + bottom + 1 - out.side) / 2;
  return out;
}

// side x side pixels from (left, top) on, what stands out of them, on white.
Tensor on_white(const Tensor& clip, const Tensor& opacity, int64_t frame, int64_t left, int64_t top, int64_t side) {
  const int64_t frames = clip.size(1), height = clip.size(2), width = clip.size(3);
  Tensor out = full({3, side, side}, 255, kUInt8, Device::CPU);
  const Tensor pixels = clip.contiguous();
  const auto* from = pixels.data<uint8_t>();
  const auto* weight = opacity.data<float>() + frame * height * width;
  auto* to = out.data<uint8_t>();
  for (int64_t y = std::max<int64_t>(0, -top); y < std::min(side, height - top); ++y)
    for (int64_t x = std::max<int64_t>(0, -left); x < std::min(side, width - left); ++x) {
      const int64_t at = (top + y) * width + left + x;
      for (int64_t c = 0; c < 3; ++c) {
        const float level = from[(c * frames + frame) * height * width + at];
        to[(c * side + y) * side + x] = uint8_t(std::lround(255 + weight[at] * (level - 255)));
      }
    }
  return out;
}

}  // namespace

TrackedClip track(const Tensor& clip) {
  const Sizes s = check_clip(clip);
  const Tensor pixels = clip.contiguous();
  const int64_t area = s.height * s.width;
  TrackedClip out;
  out.opacity = zeros({s.frames, s.height, s.width}, kFloat32, Device::CPU);
  auto* opacity = out.opacity.data<float>();
  for (int64_t c = 0; c < 3; ++c) {
    const auto* channel = pixels.data<uint8_t>() + c * s.frames * area;
    const Plane plane = background(channel, s);
    for (int64_t i = 0; i < s.frames * area; ++i) {
      const double away = std::abs(channel[i] - plane.at(double(i % s.width), double(i / s.width % s.height)));
      opacity[i] = std::max(opacity[i], float(std::clamp((away - kBegins) / (kStands - kBegins), 0.0, 1.0)));
    }
  }
  for (int64_t f = 0; f < s.frames; ++f) out.frames.push_back(located(opacity + f * area, s));
  return out;
}

Tensor cut_out(const Tensor& clip, const TrackedClip& tracked, int64_t frame) {
  check_clip(clip);
  const TrackedFrame& at = tracked.frames.at(size_t(frame));
  return on_white(clip, tracked.opacity, frame, at.left, at.top, at.side);
}

Tensor window(const Tensor& clip, const TrackedClip& tracked, int64_t frame, int64_t side) {
  check_clip(clip);
  const TrackedFrame& at = tracked.frames.at(size_t(frame));
  return on_white(clip, tracked.opacity, frame, std::llround(at.x) - side / 2, std::llround(at.y) - side / 2, side);
}

}  // namespace sf::train
