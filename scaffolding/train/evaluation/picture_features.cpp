#include "scaffolding/train/evaluation/picture_features.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "scaffolding/core/error.h"
#include "scaffolding/data/resize.h"

namespace sf::train {

namespace {

using Lab = std::array<float, 3>;

// A square of Lab colours.
struct LabPicture {
  int64_t size;
  std::vector<Lab> pixels;
  const Lab& at(int64_t y, int64_t x) const { return pixels[size_t(y * size + x)]; }
};

const std::array<float, 256>& linear() {  // sRGB's curve, IEC 61966-2-1
  static const std::array<float, 256> table = [] {
    std::array<float, 256> t;
    for (int i = 0; i < 256; ++i) {
      double v = i / 255.0;
      t[size_t(i)] = float(v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4));
    }
    return t;
  }();
  return table;
}

Lab lab_of(uint8_t red, uint8_t green, uint8_t blue) {
  const float r = linear()[red], g = linear()[green], b = linear()[blue];
  auto f = [](float v) { return v > 0.008856f ? std::cbrt(v) : 7.787f * v + 16 / 116.f; };
  const float x = f((0.4124564f * r + 0.3575761f * g + 0.1804375f * b) / 0.95047f),
              y = f(0.2126729f * r + 0.7151522f * g + 0.0721750f * b),
              z = f((0.0193339f * r + 0.1191920f * g + 0.9503041f * b) / 1.08883f);  // D65
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

// Planes of bytes [3][128 * 128].
std::vector<uint8_t> planes_of(const Tensor& picture) {
  SF_CHECK(picture.defined() && picture.ndim() == 3 && picture.size(0) == 3 && picture.size(1) > 0 &&
               picture.size(2) > 0 && picture.dtype() == kUInt8,
           "picture features: a picture must be uint8 [3, H, W], got ", picture.defined() ? picture.shape() : Shape{});
  Tensor p = picture.size(1) == 128 && picture.size(2) == 128 ? picture
                                                              : data::resize(picture, 128, 128, data::Filter::Bicubic);
  std::vector<uint8_t> planes(3 * 128 * 128);
  const uint8_t* from = p.data<uint8_t>();
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t y = 0; y < 128; ++y)
      for (int64_t x = 0; x < 128; ++x)
        planes[size_t((c * 128 + y) * 128 + x)] = from[c * p.strides()[0] + y * p.strides()[1] + x * p.strides()[2]];
  return planes;
}

LabPicture lab_picture(const Tensor& picture) {
  std::vector<uint8_t> planes = planes_of(picture);
  LabPicture out{128, std::vector<Lab>(128 * 128)};
  for (size_t i = 0; i < out.pixels.size(); ++i)
    out.pixels[i] = lab_of(planes[i], planes[128 * 128 + i], planes[2 * 128 * 128 + i]);
  return out;
}

LabPicture halved(const LabPicture& in) {
  LabPicture out{in.size / 2, std::vector<Lab>(size_t(in.size * in.size / 4))};
  for (int64_t y = 0; y < out.size; ++y)
    for (int64_t x = 0; x < out.size; ++x)
      for (size_t k = 0; k < 3; ++k)
        out.pixels[size_t(y * out.size + x)][k] = 0.25f * (in.at(2 * y, 2 * x)[k] + in.at(2 * y, 2 * x + 1)[k] +
                                                           in.at(2 * y + 1, 2 * x)[k] + in.at(2 * y + 1, 2 * x + 1)[k]);
  return out;
}

// 1 2 1 both ways, borders repeated.
LabPicture blurred(const LabPicture& in) {
  LabPicture rows = in, out = in;
  const int64_t n = in.size;
  auto pass = [n](const LabPicture& from, LabPicture& to, int64_t dy, int64_t dx) {
    for (int64_t y = 0; y < n; ++y)
      for (int64_t x = 0; x < n; ++x) {
        const Lab &a = from.at(std::max<int64_t>(0, y - dy), std::max<int64_t>(0, x - dx)),
                  &b = from.at(std::min<int64_t>(n - 1, y + dy), std::min<int64_t>(n - 1, x + dx));
        for (size_t k = 0; k < 3; ++k) to.pixels[size_t(y * n + x)][k] = 0.25f * (a[k] + 2 * from.at(y, x)[k] + b[k]);
      }
  };
  pass(in, rows, 1, 0);
  pass(rows, out, 0, 1);
  return out;
}

void add_colours(const LabPicture& half, float* out) {  // of 64x64: 16x16 areas
  for (int64_t y = 0; y < 64; ++y)
    for (int64_t x = 0; x < 64; ++x)
      for (size_t k = 0; k < 3; ++k) out[(y / 4 * 16 + x / 4) * 3 + int64_t(k)] += half.at(y, x)[k] / (16 * 30);
}

void add_gradients(const LabPicture& p, float* out) {  // of 64x64: 8x8 cells
  constexpr int64_t kBins = 9;
  for (int64_t y = 0; y < 64; ++y)
    for (int64_t x = 0; x < 64; ++x) {
      float most = 0, gx = 0, gy = 0;
      for (size_t k = 0; k < 3; ++k) {
        float dx = x > 0 && x < 63 ? p.at(y, x + 1)[k] - p.at(y, x - 1)[k] : 0,
              dy = y > 0 && y < 63 ? p.at(y + 1, x)[k] - p.at(y - 1, x)[k] : 0;
        if (dx * dx + dy * dy > most) most = dx * dx + dy * dy, gx = dx, gy = dy;
      }
      if (most == 0) continue;
      float weight = std::sqrt(std::sqrt(most)) / 64;
      float angle = std::atan2(gy, gx) / float(std::numbers::pi);  // (-1, 1]; opposite directions are one
      float place = (angle < 0 ? angle + 1 : angle) * kBins;
      int64_t bin = std::min<int64_t>(kBins - 1, int64_t(place));
      float rest = place - float(bin);
      float* cell = out + (y / 8 * 8 + x / 8) * kBins;
      cell[bin] += weight * (1 - rest);
      cell[(bin + 1) % kBins] += weight * rest;
    }
}

// The place among ascending edges: the number of those that v has reached.
template <size_t N> size_t place_of(float v, const std::array<float, N>& edges) {
  return size_t(std::upper_bound(edges.begin(), edges.end(), v) - edges.begin());
}

}  // namespace

std::vector<float> layout_features(const Tensor& picture) {
  LabPicture half = halved(lab_picture(picture));
  std::vector<float> out(size_t(kLayoutFeatures), 0.f);
  add_colours(half, out.data());
  add_gradients(blurred(half), out.data() + 16 * 16 * 3);
  return out;
}

std::vector<float> coarse_features(const std::vector<float>& layout) {
  std::vector<float> out(size_t(kCoarseFeatures), 0.f);
  auto pool = [](const float* from, float* to, int64_t side, int64_t depth) {
    for (int64_t y = 0; y < side; ++y)
      for (int64_t x = 0; x < side; ++x)
        for (int64_t k = 0; k < depth; ++k)
          to[(y / 2 * (side / 2) + x / 2) * depth + k] += 0.25f * from[(y * side + x) * depth + k];
  };
  pool(layout.data(), out.data(), 16, 3);
  pool(layout.data() + 16 * 16 * 3, out.data() + 8 * 8 * 3, 8, 9);
  return out;
}

std::vector<float> texture_features(const Tensor& picture) {
  static constexpr std::array<float, 13> kSlopes{.25f, .5f, 1, 2, 3, 4.5f, 7, 10, 15, 22, 32, 48, 70};
  static constexpr std::array<float, 8> kBends{.25f, .5f, 1, 2, 4, 8, 16, 32};
  LabPicture p = lab_picture(picture);
  std::vector<float> figure(128 * 128);  // 1 where there is no background
  const auto border = border_colour(picture);
  const Lab ground = lab_of(border[0], border[1], border[2]);
  float area = 1;
  for (size_t i = 0; i < figure.size(); ++i) {
    float difference = 0;
    for (size_t k = 0; k < 3; ++k) difference += std::abs(p.pixels[i][k] - ground[k]);
    area += figure[i] = difference > 6 ? 1.f : 0.f;
  }
  std::vector<float> out(size_t(kTextureFeatures), 0.f);
  float* to = out.data();

  float* last = to + 3 * (14 + 9);
  for (size_t i = 0; i < figure.size(); ++i) {
    if (figure[i] == 0) continue;
    const Lab& c = p.pixels[i];
    float chroma = std::hypot(c[1], c[2]);
    last[std::clamp<int>(int(c[0] / 10), 0, 9)] += 1 / area;
    last[10 + std::min(int(chroma / 10), 9)] += 1 / area;
    if (chroma > 8) last[20 + int((std::atan2(c[2], c[1]) / float(std::numbers::pi) + 1) * 8) % 16] += 1 / area;
    last[36 + int64_t(i) / 128 / 16] += 1 / 2048.f;
    last[44 + int64_t(i) % 128 / 16] += 1 / 2048.f;
  }

  for (int scale = 0; scale < 3; ++scale, to += 14 + 9) {
    const int64_t n = p.size;
    float inside = 1;
    for (int64_t y = 1; y + 1 < n; ++y)
      for (int64_t x = 1; x + 1 < n; ++x) inside += figure[size_t(y * n + x)];
    for (int64_t y = 1; y + 1 < n; ++y)
      for (int64_t x = 1; x + 1 < n; ++x) {
        if (figure[size_t(y * n + x)] == 0) continue;
        float slope = 0;
        for (size_t k = 0; k < 3; ++k) {
          float dx = p.at(y, x + 1)[k] - p.at(y, x - 1)[k], dy = p.at(y + 1, x)[k] - p.at(y - 1, x)[k];
          slope += dx * dx + dy * dy;
        }
        float bend =
            std::abs(4 * p.at(y, x)[0] - p.at(y, x + 1)[0] - p.at(y, x - 1)[0] - p.at(y + 1, x)[0] - p.at(y - 1, x)[0]);
        to[place_of(std::sqrt(slope), kSlopes)] += 1 / inside;
        to[14 + place_of(bend, kBends)] += 1 / inside;
      }
    if (scale == 2) break;
    std::vector<float> smaller(size_t(n * n / 4));
    for (int64_t y = 0; y < n / 2; ++y)
      for (int64_t x = 0; x < n / 2; ++x) {
        float* f = figure.data() + 2 * y * n + 2 * x;
        smaller[size_t(y * n / 2 + x)] = f[0] + f[1] + f[n] + f[n + 1] > 2 ? 1.f : 0.f;
      }
    figure = std::move(smaller);
    p = halved(p);
  }
  for (float& v : out) v = std::sqrt(v);
  return out;
}

std::array<uint8_t, 3> border_colour(const Tensor& picture) {
  std::vector<uint8_t> planes = planes_of(picture);
  std::array<uint8_t, 3> out;
  for (size_t c = 0; c < 3; ++c) {
    std::vector<uint8_t> ring;
    for (size_t y = 0; y < 128; ++y)
      for (size_t x = 0; x < 128; ++x)
        if (y < 3 || y >= 125 || x < 3 || x >= 125) ring.push_back(planes[(c * 128 + y) * 128 + x]);
    std::nth_element(ring.begin(), ring.begin() + int64_t(ring.size() / 2), ring.end());
    out[c] = ring[ring.size() / 2];
  }
  return out;
}

double lab_distance(const std::array<uint8_t, 3>& a, const std::array<uint8_t, 3>& b) {
  Lab p = lab_of(a[0], a[1], a[2]), q = lab_of(b[0], b[1], b[2]);
  return std::sqrt(std::pow(p[0] - q[0], 2) + std::pow(p[1] - q[1], 2) + std::pow(p[2] - q[2], 2));
}

}  // namespace sf::train
