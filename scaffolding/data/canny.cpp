#include "scaffolding/data/canny.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::data {

namespace {

// tan 22.5 degrees in 15 bits; tan 67.5 is 2 more.
constexpr int64_t kTan22 = 13573;
constexpr int kBits = 15;

struct Slopes {
  int64_t height, width;
  std::vector<int> dx, dy;    // [H * W]
  std::vector<int> strength;  // [(H + 2) * (W + 2)], zeros around
  int& at(int64_t y, int64_t x) { return strength[size_t((y + 1) * (width + 2) + x + 1)]; }
};

Slopes slopes_of(const Tensor& picture) {
  const int64_t C = picture.size(0), H = picture.size(1), W = picture.size(2);
  Slopes s{H, W, std::vector<int>(size_t(H * W)), std::vector<int>(size_t(H * W)),
           std::vector<int>(size_t((H + 2) * (W + 2)))};
  const auto* pixels = picture.data<uint8_t>();
  for (int64_t c = 0; c < C; ++c)
    for (int64_t y = 0; y < H; ++y) {
      const uint8_t* here = pixels + (c * H + y) * W;
      const uint8_t* above = pixels + (c * H + std::max<int64_t>(y - 1, 0)) * W;
      const uint8_t* below = pixels + (c * H + std::min(y + 1, H - 1)) * W;
      for (int64_t x = 0; x < W; ++x) {
        const int64_t l = std::max<int64_t>(x - 1, 0), r = std::min(x + 1, W - 1);
        const int dx = above[r] - above[l] + 2 * (here[r] - here[l]) + below[r] - below[l];
        const int dy = below[l] + 2 * below[x] + below[r] - above[l] - 2 * above[x] - above[r];
        const int strength = std::abs(dx) + std::abs(dy);
        if (c > 0 && strength <= s.at(y, x)) continue;
        const auto i = size_t(y * W + x);
        s.dx[i] = dx, s.dy[i] = dy, s.at(y, x) = strength;
      }
    }
  return s;
}

// Whether the pixel is the steepest across the edge, whose direction is one of four.
bool is_ridge(Slopes& s, int64_t y, int64_t x) {
  const auto i = size_t(y * s.width + x);
  const int m = s.at(y, x);
  const int64_t ax = std::abs(s.dx[i]), ay = int64_t(std::abs(s.dy[i])) << kBits;
  const int64_t low = ax * kTan22, high = low + (ax << (kBits + 1));
  if (ay < low) return m > s.at(y, x - 1) && m >= s.at(y, x + 1);
  if (ay > high) return m > s.at(y - 1, x) && m >= s.at(y + 1, x);
  const int64_t side = (s.dx[i] ^ s.dy[i]) < 0 ? -1 : 1;
  return m > s.at(y - 1, x - side) && m > s.at(y + 1, x + side);
}

}  // namespace

Tensor canny(const Tensor& picture, double low, double high) {
  check_defined("canny", "picture", picture);
  SF_CHECK(picture.ndim() == 3 && picture.numel() > 0 && picture.dtype() == kUInt8,
           "canny: picture must be uint8 [C, H, W], got ", name(picture.dtype()), picture.shape());
  SF_CHECK(std::isfinite(low) && std::isfinite(high), "canny: thresholds must be finite, got ", low, " and ", high);
  if (low > high) std::swap(low, high);
  low = std::floor(low), high = std::floor(high);
  const Tensor pixels = contiguous(picture.to(Device()));
  Slopes s = slopes_of(pixels);
  const int64_t H = s.height, W = s.width;
  enum : uint8_t { kNone, kWeak, kEdge = 255 };
  Tensor edges = zeros({1, H, W}, kUInt8);
  auto* out = edges.data<uint8_t>();
  std::vector<int64_t> found;
  for (int64_t y = 0; y < H; ++y)
    for (int64_t x = 0; x < W; ++x) {
      const int strength = s.at(y, x);
      if (strength <= low || !is_ridge(s, y, x)) continue;
      out[y * W + x] = strength > high ? kEdge : kWeak;
      if (strength > high) found.push_back(y * W + x);
    }
  while (!found.empty()) {
    const int64_t y = found.back() / W, x = found.back() % W;
    found.pop_back();
    for (int64_t v = std::max<int64_t>(y - 1, 0); v <= std::min(y + 1, H - 1); ++v)
      for (int64_t u = std::max<int64_t>(x - 1, 0); u <= std::min(x + 1, W - 1); ++u)
        if (out[v * W + u] == kWeak) out[v * W + u] = kEdge, found.push_back(v * W + u);
  }
  for (int64_t i = 0; i < H * W; ++i)
    if (out[i] == kWeak) out[i] = kNone;
  return edges;
}

}  // namespace sf::data
