#include "scaffolding/data/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "scaffolding/data/picture_kernel.h"

namespace sf::data {

KernelTable<ResizePass> picture_resize("picture_resize");
KernelTable<PixelsToFloat> picture_to_float("picture_to_float");
KernelTable<CompositePixels> picture_composite("picture_composite");

Filter filter(std::string_view name) {
  static constexpr std::string_view names[] = {"nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"};
  for (int i = 0; i < 6; ++i)
    if (names[i] == name) return Filter(i);
  fail("resize: interpolation must be 'nearest', 'box', 'bilinear', 'hamming', 'bicubic' or 'lanczos', got '", name,
       "'");
}

namespace {

double sinc(double x) { return x == 0 ? 1 : std::sin(x * M_PI) / (x * M_PI); }

double radius(Filter f) { return f == Filter::Box ? 0.5 : f == Filter::Bicubic ? 2 : f == Filter::Lanczos ? 3 : 1; }

double value(Filter f, double x) {
  switch (f) {
    case Filter::Box: return x > -0.5 && x <= 0.5 ? 1 : 0;
    case Filter::Bilinear: return std::max(0.0, 1 - std::abs(x));
    case Filter::Hamming:
      x = std::abs(x);
      return x == 0 ? 1 : x >= 1 ? 0 : sinc(x) * (0.54 + 0.46 * std::cos(x * M_PI));
    case Filter::Bicubic: {  // Keys' a = -0.5
      x = std::abs(x);
      return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
    }
    default: return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
  }
}

struct Weights {
  std::vector<int32_t> first, count, weight;
  int taps;
};

Weights weights_of(Filter f, int64_t in_size, int64_t out_size) {
  double scale = double(in_size) / double(out_size), widen = std::max(scale, 1.0), support = radius(f) * widen;
  Weights w;
  w.taps = (int(std::ceil(support)) * 2 + 1 + 3) / 4 * 4;
  w.first.resize(size_t(out_size));
  w.count.resize(size_t(out_size));
  w.weight.resize(size_t(out_size) * size_t(w.taps));
  std::vector<double> k(size_t(w.taps));
  for (int64_t o = 0; o < out_size; ++o) {
    double centre = (double(o) + 0.5) * scale, sum = 0;
    int64_t first = std::max<int64_t>(int64_t(centre - support + 0.5), 0),
            n = std::min<int64_t>(int64_t(centre + support + 0.5), in_size) - first;
    for (int64_t i = 0; i < n; ++i) sum += k[size_t(i)] = value(f, (double(i + first) - centre + 0.5) / widen);
    for (int64_t i = 0; i < n; ++i) {
      double v = (sum != 0 ? k[size_t(i)] / sum : k[size_t(i)]) * (1 << 22);
      w.weight[size_t(o * w.taps + i)] = int32_t(v < 0 ? v - 0.5 : v + 0.5);
    }
    w.first[size_t(o)] = int32_t(first);
    w.count[size_t(o)] = int32_t(n);
  }
  return w;
}

// A thread meets few pairs of sizes in a row, and small pictures cost little more than their weights.
const Weights& kept_weights(Filter f, int64_t in_size, int64_t out_size) {
  struct Kept {
    Filter f;
    int64_t in_size, out_size;
    Weights weights;
  };
  static thread_local std::vector<Kept> recent;  // at most two
  for (Kept& k : recent)
    if (k.f == f && k.in_size == in_size && k.out_size == out_size) return k.weights;
  if (recent.size() == 2) recent.erase(recent.begin());
  recent.push_back({f, in_size, out_size, weights_of(f, in_size, out_size)});
  return recent.back().weights;
}

// [H, W, C] -> [height, width, C]
Tensor resized(Tensor x, int64_t height, int64_t width, Filter f) {
  int64_t C = x.size(2);
  auto pass = [&](bool along_rows, int64_t in_size, int64_t out_size, int64_t rows, const Shape& shape) {
    if (in_size == out_size) return;
    const Weights& w = kept_weights(f, in_size, out_size);
    Tensor y = empty(shape, kUInt8);
    ResizePass p{x.data<uint8_t>(), y.data<uint8_t>(), rows,           in_size,         out_size, int(C),
                 along_rows,        w.first.data(),    w.count.data(), w.weight.data(), w.taps};
    picture_resize.find(Device::CPU, p)(p);
    x = y;
  };
  // Columns first, as Pillow does it; since 13.0 lines first where more than twice as many of them go: a pass rounds.
  const int64_t lines_gone = x.size(0) - height, columns_gone = x.size(1) - width;
  const bool lines_first = lines_gone > 0 && lines_gone > 2 * columns_gone;
  if (lines_first) pass(true, x.size(0), height, x.size(1), {height, x.size(1), C});
  pass(false, x.size(1), width, x.size(0), {x.size(0), width, C});
  pass(true, x.size(0), height, width, {height, width, C});
  return x;
}

Tensor nearest(const Tensor& x, int64_t height, int64_t width) {
  int64_t H = x.size(0), W = x.size(1), C = x.size(2);
  Tensor y = empty({height, width, C}, kUInt8);
  double step_y = double(H) / double(height), step_x = double(W) / double(width);
  uint8_t* to = y.data<uint8_t>();
  for (int64_t i = 0; i < height; ++i) {
    const uint8_t* row = x.data<uint8_t>() + std::min(H - 1, int64_t((double(i) + 0.5) * step_y)) * W * C;
    for (int64_t j = 0; j < width; ++j, to += C)
      std::copy_n(row + std::min(W - 1, int64_t((double(j) + 0.5) * step_x)) * C, C, to);
  }
  return y;
}

int product(int a, int b) {  // a * b / 255, rounded
  int v = a * b + 128;
  return ((v >> 8) + v) >> 8;
}

Tensor premultiplied(const Tensor& x) {
  int64_t C = x.size(2);
  Tensor y = empty(x.shape(), kUInt8);
  const uint8_t* from = x.data<uint8_t>();
  uint8_t* to = y.data<uint8_t>();
  for (int64_t i = 0; i < x.size(0) * x.size(1); ++i, from += C, to += C) {
    int alpha = to[C - 1] = from[C - 1];
    for (int64_t c = 0; c < C - 1; ++c) to[c] = uint8_t(product(from[c], alpha));
  }
  return y;
}

void unpremultiply(const Tensor& x) {
  int64_t C = x.size(2);
  uint8_t* p = x.data<uint8_t>();
  for (int64_t i = 0; i < x.size(0) * x.size(1); ++i, p += C)
    if (int alpha = p[C - 1]; alpha != 0 && alpha != 255)
      for (int64_t c = 0; c < C - 1; ++c) p[c] = uint8_t(std::min(255, 255 * p[c] / alpha));
}

}  // namespace

Tensor resize(const Tensor& image, int64_t height, int64_t width, Filter f) {
  check_defined("resize", "image", image);
  SF_CHECK_AS(TypeError, image.dtype() == kUInt8 && image.device().is_cpu(),
              "resize: image must be uint8 on the CPU, got ", image.dtype(), " on ", image.device());
  SF_CHECK(image.ndim() == 3 && image.size(0) >= 1 && image.size(0) <= 4 && image.numel() > 0,
           "resize: image must be [C, H, W] with C = 1 to 4, got ", image.shape());
  SF_CHECK(height > 0 && width > 0 && height < (1 << 24) && width < (1 << 24),
           "resize: size must be positive and below 2^24, got ", height, " x ", width);
  Tensor x = image.permute({1, 2, 0}).contiguous();
  if (x.size(0) != height || x.size(1) != width) {
    bool alpha = x.size(2) % 2 == 0;
    if (f == Filter::Nearest) x = nearest(x, height, width);
    else if (!alpha) x = resized(x, height, width, f);
    else unpremultiply(x = resized(premultiplied(x), height, width, f));
  }
  return x.permute({2, 0, 1});
}

}  // namespace sf::data
