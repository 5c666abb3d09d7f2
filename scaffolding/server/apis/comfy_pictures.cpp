#include "scaffolding/server/apis/comfy_pictures.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/data/resize.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/server/jobs/masks.h"

namespace sf::server {

namespace {

uint8_t level(double v) { return uint8_t(std::lround(std::clamp(v, 0.0, 255.0))); }

template <class F> Tensor each(const Tensor& picture, F f) {
  const Tensor from = io::planar_image(picture);
  Tensor out = empty(from.shape(), kUInt8);
  for (int64_t i = 0; i < from.numel(); ++i) out.data<uint8_t>()[i] = f(from.data<uint8_t>()[i]);
  return out;
}

// The mask in the picture's size.
Tensor fitted(const Tensor& mask, const Tensor& picture) {
  if (mask.size(1) == picture.size(1) && mask.size(2) == picture.size(2)) return io::planar_image(mask);
  return io::planar_image(data::resize(mask, picture.size(1), picture.size(2)));
}

// Largest of 2 by + 1 values of each row, by the next larger one that is still in reach; then rows become columns.
std::vector<uint8_t> widened_turned(const std::vector<uint8_t>& in, int64_t h, int64_t w, int64_t by) {
  std::vector<uint8_t> out(in.size());
  std::vector<int64_t> ahead(static_cast<size_t>(w));  // places whose values fall
  for (int64_t y = 0; y < h; ++y) {
    const uint8_t* row = in.data() + y * w;
    size_t begin = 0, end = 0;
    for (int64_t x = -by; x < w; ++x) {
      if (const int64_t next = x + by; next < w) {
        while (end > begin && row[ahead[end - 1]] <= row[next]) --end;
        ahead[end++] = next;
      }
      if (x < 0) continue;
      while (ahead[begin] < x - by) ++begin;
      out[size_t(x * h + y)] = row[ahead[begin]];
    }
  }
  return out;
}

}  // namespace

Tensor cropped(const Tensor& picture, int64_t x, int64_t y, int64_t width, int64_t height) {
  SF_CHECK(x >= 0 && y >= 0 && width > 0 && height > 0 && x + width <= picture.size(2) && y + height <= picture.size(1),
           "a part of ", width, "x", height, " at ", x, ", ", y, " does not lie in a picture of ", picture.size(2), "x",
           picture.size(1));
  return io::planar_image(picture).narrow(1, y, height).narrow(2, x, width).contiguous();
}

Tensor grown_mask(const Tensor& mask, int64_t by, int64_t blur) {
  if (by < 0) return inverted(grown_mask(inverted(mask), -by, blur));
  const int64_t h = mask.size(1), w = mask.size(2);
  const Tensor from = io::planar_image(mask);
  std::vector<uint8_t> values(from.data<uint8_t>(), from.data<uint8_t>() + h * w);
  const int64_t most = std::min(by, std::max(h, w) - 1);
  if (most > 0) values = widened_turned(widened_turned(values, h, w, most), w, h, most);
  Tensor out = empty({1, h, w}, kUInt8);
  std::copy(values.begin(), values.end(), out.data<uint8_t>());
  // A Gaussian of 2 blur + 1 pixels has about this deviation.
  return blur > 0 ? blurred_mask(out, std::lround(0.3 * double(blur) + 0.5)) : out;
}

Tensor threshold_mask(const Tensor& mask, double least) {
  return each(mask, [&](uint8_t v) { return uint8_t(v > 255 * least ? 255 : 0); });
}

Tensor stabilized_mask(const Tensor& mask, double epsilon) {
  return each(mask, [&](uint8_t v) {
    return v < 255 * epsilon ? uint8_t(0) : v > 255 * (1 - epsilon) ? uint8_t(255) : v;
  });
}

Tensor inverted(const Tensor& picture) {
  return each(picture, [](uint8_t v) { return uint8_t(255 - v); });
}

Tensor mixed(const Tensor& picture, const Tensor& other, const Tensor& mask) {
  const Tensor a = io::planar_image(picture), b = io::planar_image(other), m = fitted(mask, picture);
  SF_CHECK(a.shape() == b.shape(), "pictures of one size are needed");
  const int64_t n = a.size(1) * a.size(2);
  Tensor out = empty(a.shape(), kUInt8);
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double share = m.data<uint8_t>()[i % n] / 255.0;
    out.data<uint8_t>()[i] = level(a.data<uint8_t>()[i] * (1 - share) + b.data<uint8_t>()[i] * share);
  }
  return out;
}

Tensor blurred_under(const Tensor& picture, const Tensor& mask, int64_t blur) {
  const Tensor from = io::planar_image(picture);
  Tensors channels;
  for (int64_t c = 0; c < from.size(0); ++c)
    channels.push_back(blurred_mask(from.narrow(0, c, 1), std::lround(0.3 * double(blur) + 0.5)));
  return mixed(picture, cat(channels, 0), mask);
}

Tensor with_alpha(const Tensor& picture, const Tensor& mask) {
  return cat({io::planar_image(io::convert_image(picture, io::ImageMode::RGB)), fitted(mask, picture)}, 0);
}

Tensor colour_matched(const Tensor& picture, const Tensor& other, const Tensor& mask, double strength) {
  const Tensor a = io::planar_image(picture), m = fitted(mask, picture);
  const Tensor b = io::planar_image(
      other.size(1) == a.size(1) && other.size(2) == a.size(2) ? other : data::resize(other, a.size(1), a.size(2)));
  const int64_t n = a.size(1) * a.size(2);
  Tensor out = empty(a.shape(), kUInt8);
  for (int64_t c = 0; c < a.size(0); ++c) {
    double sums[4] = {}, count = 0;  // of a, its squares, of b, its squares
    for (int64_t i = 0; i < n; ++i) {
      if (m.data<uint8_t>()[i] >= 128) continue;
      const double x = a.data<uint8_t>()[c * n + i], y = b.data<uint8_t>()[std::min(c, b.size(0) - 1) * n + i];
      sums[0] += x, sums[1] += x * x, sums[2] += y, sums[3] += y * y, ++count;
    }
    auto spread = [&](double sum, double squares) {
      return std::sqrt(std::max(0.0, squares / count - sum / count * sum / count));
    };
    const double from = count ? spread(sums[0], sums[1]) : 0, to = count ? spread(sums[2], sums[3]) : 0;
    const double scale = from > 1 ? to / from : 1, shift = count ? sums[2] / count - scale * sums[0] / count : 0;
    for (int64_t i = 0; i < n; ++i) {
      const double v = a.data<uint8_t>()[c * n + i];
      out.data<uint8_t>()[c * n + i] = level(v + strength * ((count ? scale : 1) * v + shift - v));
    }
  }
  return out;
}

}  // namespace sf::server
