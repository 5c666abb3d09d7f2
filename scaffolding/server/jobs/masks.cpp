#include "scaffolding/server/jobs/masks.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "scaffolding/core/error.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/ops/ops.h"

namespace sf::server {

namespace {

using Plane = std::vector<double>;  // [H, W]

// Means over 2 r + 1 values of each row, whose ends are repeated; then the rows become columns.
Plane box_blurred_turned(const Plane& in, int64_t h, int64_t w, int64_t r) {
  Plane out(in.size());
  for (int64_t y = 0; y < h; ++y) {
    const double* row = in.data() + y * w;
    auto at = [&](int64_t x) { return row[std::clamp<int64_t>(x, 0, w - 1)]; };
    double sum = 0;
    for (int64_t x = -r; x <= r; ++x) sum += at(x);
    for (int64_t x = 0; x < w; ++x) {
      out[size_t(x * h + y)] = sum / double(2 * r + 1);
      sum += at(x + r + 1) - at(x - r);
    }
  }
  return out;
}

Plane blurred(Plane p, int64_t h, int64_t w, double deviation) {
  // Three boxes of this radius have about that deviation.
  const auto r = int64_t(std::lround((std::sqrt(4 * deviation * deviation + 1) - 1) / 2));
  if (r < 1) return p;
  for (int i = 0; i < 3; ++i) p = box_blurred_turned(box_blurred_turned(p, h, w, r), w, h, r);
  return p;
}

Plane plane_of(const Tensor& planar, int64_t channel) {
  const int64_t n = planar.size(1) * planar.size(2);
  const auto* from = planar.data<uint8_t>() + channel * n;
  return {from, from + n};
}

}  // namespace

Tensor blurred_mask(const Tensor& mask, int64_t deviation) {
  if (deviation <= 0) return mask;
  const int64_t h = mask.size(1), w = mask.size(2);
  const Plane soft = blurred(plane_of(io::planar_image(mask), 0), h, w, double(deviation));
  Tensor out = empty({1, h, w}, kUInt8);
  for (int64_t i = 0; i < h * w; ++i)
    out.data<uint8_t>()[i] = uint8_t(std::lround(std::clamp(soft[size_t(i)], 0.0, 255.0)));
  return out;
}

Tensor filled_picture(const Tensor& picture, const Tensor& mask) {
  const int64_t h = picture.size(1), w = picture.size(2), n = h * w;
  SF_CHECK(mask.size(1) == h && mask.size(2) == w, "mask: must have the picture's size");
  const Tensor planar = io::planar_image(picture), cover = io::planar_image(mask);
  Plane known(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) known[size_t(i)] = 1 - cover.data<uint8_t>()[i] / 255.0;
  Tensor out = empty({3, h, w}, kUInt8);
  for (int64_t c = 0; c < 3; ++c) {
    const Plane values = plane_of(planar, c);
    Plane made(static_cast<size_t>(n), 0), weight = known;
    for (int64_t i = 0; i < n; ++i) made[size_t(i)] = values[size_t(i)] * known[size_t(i)];
    Plane sum(static_cast<size_t>(n), 127.5);                       // where nothing at all is known
    for (const double deviation : {256.0, 64.0, 16.0, 4.0, 2.0}) {  // AUTOMATIC1111's, the far ones first
      const Plane colours = blurred(made, h, w, deviation), shares = blurred(weight, h, w, deviation);
      for (size_t i = 0; i < size_t(n); ++i)
        if (shares[i] > 1e-3) {
          const double near = std::min(1.0, 4 * shares[i]);
          sum[i] = sum[i] * (1 - near) + colours[i] / shares[i] * near;
        }
    }
    for (int64_t i = 0; i < n; ++i) {
      const double k = known[size_t(i)], v = values[size_t(i)] * k + sum[size_t(i)] * (1 - k);
      out.data<uint8_t>()[c * n + i] = uint8_t(std::lround(std::clamp(v, 0.0, 255.0)));
    }
  }
  return out;
}

}  // namespace sf::server
