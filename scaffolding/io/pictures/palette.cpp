#include "scaffolding/io/pictures/palette.h"

#include <algorithm>
#include <unordered_map>

namespace sf::io {

namespace {

// Pixels of one colour, or of one cell of 32^3 where there are too many colours.
struct Bin {
  std::array<double, 3> sum{};
  double count = 0;
  std::array<double, 3> mean() const { return {sum[0] / count, sum[1] / count, sum[2] / count}; }
};

struct Box {
  std::vector<Bin> bins;
  int axis = 0;
  double error = 0;  // squared, along `axis`
};

// Weights of the channels' errors: about how much the eye sees of each (luma's, softened).
constexpr double kWeight[3] = {0.9, 1.2, 0.7};

Box measured(std::vector<Bin> bins) {
  Box box{std::move(bins)};
  std::array<double, 3> sum{}, squares{};
  double n = 0;
  for (auto& b : box.bins) {
    auto m = b.mean();
    n += b.count;
    for (int k = 0; k < 3; ++k)
      sum[size_t(k)] += b.sum[size_t(k)], squares[size_t(k)] += b.count * m[size_t(k)] * m[size_t(k)];
  }
  for (int k = 0; k < 3; ++k) {
    double error = kWeight[k] * (squares[size_t(k)] - sum[size_t(k)] * sum[size_t(k)] / n);
    if (error > box.error) box.error = error, box.axis = k;
  }
  return box;
}

// At the place along the axis that leaves the least squared error.
std::pair<Box, Box> halves(Box box) {
  const size_t k = size_t(box.axis);
  std::sort(box.bins.begin(), box.bins.end(), [k](const Bin& a, const Bin& b) {
    return a.mean() < b.mean() ? a.mean()[k] <= b.mean()[k] : a.mean()[k] < b.mean()[k];
  });
  double all = 0, n = 0, left = 0, count = 0, best = -1;
  for (auto& b : box.bins) all += b.sum[k], n += b.count;
  size_t at = 1;
  for (size_t i = 0; i + 1 < box.bins.size(); ++i) {
    left += box.bins[i].sum[k], count += box.bins[i].count;
    double explained = left * left / count + (all - left) * (all - left) / (n - count);
    if (explained > best) best = explained, at = i + 1;
  }
  std::vector<Bin> right(box.bins.begin() + int64_t(at), box.bins.end());
  box.bins.resize(at);
  return {measured(std::move(box.bins)), measured(std::move(right))};
}

uint8_t byte_of(double v) { return uint8_t(std::clamp(v + 0.5, 0.0, 255.0)); }

int nearest(const std::vector<Colour>& palette, const double* c) {
  int best = 0;
  double least = 1e30;
  for (size_t i = 0; i < palette.size(); ++i) {
    double d = 0;
    for (int k = 0; k < 3; ++k) d += kWeight[k] * (palette[i][size_t(k)] - c[k]) * (palette[i][size_t(k)] - c[k]);
    if (d < least) least = d, best = int(i);
  }
  return best;
}

std::vector<Bin> bins_of(const Tensor& pixels, int shift) {
  std::unordered_map<uint32_t, size_t> place;
  std::vector<Bin> bins;
  const uint8_t* p = pixels.data<uint8_t>();
  for (int64_t i = 0; i < pixels.numel(); i += 3) {
    uint32_t key = uint32_t(p[i] >> shift) << 16 | uint32_t(p[i + 1] >> shift) << 8 | uint32_t(p[i + 2] >> shift);
    auto [it, fresh] = place.try_emplace(key, bins.size());
    if (fresh) bins.emplace_back();
    Bin& bin = bins[it->second];
    for (int k = 0; k < 3; ++k) bin.sum[size_t(k)] += p[i + k];
    ++bin.count;
  }
  return bins;
}

}  // namespace

std::vector<Colour> palette_of(const Tensor& pixels, int count) {
  std::vector<Bin> bins = bins_of(pixels, 0);
  if (bins.size() > size_t(count)) {
    bins = bins_of(pixels, 3);
    std::vector<Box> boxes{measured(bins)};
    while (boxes.size() < size_t(count)) {
      auto worst =
          std::max_element(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.error < b.error; });
      if (worst->error <= 0 || worst->bins.size() < 2) break;
      auto [left, right] = halves(std::move(*worst));
      *worst = std::move(left);
      boxes.push_back(std::move(right));
    }
    std::vector<Colour> palette;
    auto colour_of = [](const Bin& b) {
      auto m = b.mean();
      return Colour{byte_of(m[0]), byte_of(m[1]), byte_of(m[2])};
    };
    for (auto& box : boxes) {
      Bin all;
      for (auto& b : box.bins) {
        for (size_t k = 0; k < 3; ++k) all.sum[k] += b.sum[k];
        all.count += b.count;
      }
      palette.push_back(colour_of(all));
    }
    for (int round = 0; round < 3; ++round) {
      std::vector<Bin> near(palette.size());
      for (auto& b : bins) {
        auto m = b.mean();
        Bin& bin = near[size_t(nearest(palette, m.data()))];
        for (size_t k = 0; k < 3; ++k) bin.sum[k] += b.sum[k];
        bin.count += b.count;
      }
      for (size_t i = 0; i < palette.size(); ++i)
        if (near[i].count > 0) palette[i] = colour_of(near[i]);
    }
    return palette;
  }
  std::vector<Colour> exact;
  for (auto& b : bins) exact.push_back({byte_of(b.mean()[0]), byte_of(b.mean()[1]), byte_of(b.mean()[2])});
  return exact;
}

std::vector<uint8_t> indexed(const Tensor& pixels, const std::vector<Colour>& palette, bool dither) {
  const int64_t H = pixels.size(0), W = pixels.size(1);
  const uint8_t* p = pixels.data<uint8_t>();
  std::vector<uint8_t> out(size_t(H * W));
  // Searched once for each colour of 6 bits: the rest is below what dithering adds.
  std::unordered_map<uint32_t, int> known;
  auto place = [&](const double* c) {
    uint32_t key = 0;
    for (int k = 0; k < 3; ++k) key = key << 8 | (dither ? byte_of(c[k]) & 0xfcu : byte_of(c[k]));
    auto [it, fresh] = known.try_emplace(key, 0);
    if (fresh) it->second = nearest(palette, c);
    return it->second;
  };
  std::vector<double> here(size_t(3 * (W + 2))), below(here.size());  // errors to be added, with a pixel of margin
  for (int64_t y = 0; y < H; ++y) {
    const int64_t step = y % 2 ? -1 : 1;
    std::fill(below.begin(), below.end(), 0);
    for (int64_t i = 0, x = step > 0 ? 0 : W - 1; i < W; ++i, x += step) {
      double c[3];
      for (int k = 0; k < 3; ++k) c[k] = std::clamp(p[3 * (y * W + x) + k] + here[size_t(3 * (x + 1) + k)], 0.0, 255.0);
      int at = place(c);
      out[size_t(y * W + x)] = uint8_t(at);
      if (!dither) continue;
      for (int k = 0; k < 3; ++k) {
        double error = c[k] - palette[size_t(at)][size_t(k)];
        here[size_t(3 * (x + 1 + step) + k)] += error * 7 / 16;
        below[size_t(3 * (x + 1 - step) + k)] += error * 3 / 16;
        below[size_t(3 * (x + 1) + k)] += error * 5 / 16;
        below[size_t(3 * (x + 1 + step) + k)] += error * 1 / 16;
      }
    }
    std::swap(here, below);
  }
  return out;
}

}  // namespace sf::io
