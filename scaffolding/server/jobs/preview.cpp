#include "scaffolding/server/jobs/preview.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "scaffolding/core/alone_scope.h"
#include "scaffolding/io/pictures/image.h"
#include "scaffolding/ops/ops.h"

namespace sf::server {

namespace {

constexpr int64_t kMostChannels = 64;

// a[n, n] x = b[n, 3] with rows exchanged; false where a is singular.
bool solve(std::vector<double> a, std::vector<double>& b, int64_t n) {
  for (int64_t k = 0; k < n; ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < n; ++i)
      if (std::fabs(a[size_t(i * n + k)]) > std::fabs(a[size_t(best * n + k)])) best = i;
    if (std::fabs(a[size_t(best * n + k)]) < 1e-9) return false;
    for (int64_t j = 0; j < n; ++j) std::swap(a[size_t(k * n + j)], a[size_t(best * n + j)]);
    for (int64_t j = 0; j < 3; ++j) std::swap(b[size_t(k * 3 + j)], b[size_t(best * 3 + j)]);
    for (int64_t i = 0; i < n; ++i) {
      if (i == k) continue;
      const double f = a[size_t(i * n + k)] / a[size_t(k * n + k)];
      for (int64_t j = k; j < n; ++j) a[size_t(i * n + j)] -= f * a[size_t(k * n + j)];
      for (int64_t j = 0; j < 3; ++j) b[size_t(i * 3 + j)] -= f * b[size_t(k * 3 + j)];
    }
  }
  for (int64_t k = 0; k < n; ++k)
    for (int64_t j = 0; j < 3; ++j) b[size_t(k * 3 + j)] /= a[size_t(k * n + k)];
  return true;
}

}  // namespace

void LatentColours::learn(const Tensor& latents, const Tensor& frame) {
  if (latents.ndim() != 4 || latents.size(0) != 1 || latents.size(1) > kMostChannels) return;
  const int64_t c = latents.size(1), h = latents.size(2), w = latents.size(3);
  if (frame.ndim() != 3 || frame.size(2) != 3 || h == 0 || w == 0) return;
  const int64_t scale = frame.size(0) / h;
  if (scale < 1 || frame.size(0) != h * scale || frame.size(1) != w * scale) return;
  const Tensor x = latents.to(kFloat32).cpu().contiguous(), y = frame.cpu().contiguous();
  const auto* values = x.data<float>();
  const auto* colours = y.data<uint8_t>();
  const int64_t n = c + 1;
  if (channels_ != c) channels_ = c, squares_.assign(size_t(n * n), 0), products_.assign(size_t(n * 3), 0);
  std::vector<double> row(static_cast<size_t>(n), 1);  // the last is the constant
  for (int64_t i = 0; i < h; ++i)
    for (int64_t j = 0; j < w; ++j) {
      double mean[3] = {};
      for (int64_t a = 0; a < scale; ++a)
        for (int64_t b = 0; b < scale; ++b)
          for (int64_t k = 0; k < 3; ++k) mean[k] += colours[((i * scale + a) * w * scale + j * scale + b) * 3 + k];
      for (int64_t k = 0; k < c; ++k) row[size_t(k)] = values[(k * h + i) * w + j];
      for (int64_t p = 0; p < n; ++p) {
        if (!std::isfinite(row[size_t(p)])) return;
        for (int64_t q = 0; q < n; ++q) squares_[size_t(p * n + q)] += row[size_t(p)] * row[size_t(q)];
        for (int64_t k = 0; k < 3; ++k)
          products_[size_t(p * 3 + k)] += row[size_t(p)] * mean[k] / double(scale * scale);
      }
    }
  std::vector<double> a = squares_, b = products_;
  for (int64_t p = 0; p < n; ++p) a[size_t(p * n + p)] += 1e-3;  // against channels that are alike
  if (solve(a, b, n)) map_ = std::make_shared<const LatentMap>(LatentMap{c, std::move(b)});
}

std::shared_ptr<const LatentMap> LatentColours::map(int64_t channels) const {
  return map_ && map_->channels == channels ? map_ : nullptr;
}

Tensor LatentMap::picture(const Tensor& latents) const {
  const int64_t c = channels, h = latents.size(2), w = latents.size(3);
  const Tensor x = latents.narrow(0, 0, 1).to(kFloat32).contiguous();
  const auto* numbers = x.data<float>();
  Tensor out = empty({h, w, 3}, kUInt8);
  auto* colours = out.data<uint8_t>();
  for (int64_t at = 0; at < h * w; ++at)
    for (int64_t k = 0; k < 3; ++k) {
      double v = values[size_t(c * 3 + k)];
      for (int64_t j = 0; j < c; ++j) v += values[size_t(j * 3 + k)] * double(numbers[j * h * w + at]);
      colours[at * 3 + k] = uint8_t(std::lround(std::clamp(v, 0.0, 255.0)));
    }
  return out.permute({2, 0, 1});
}

const std::string& Preview::png() const {
  std::lock_guard lock(mutex_);
  if (map_) {
    const AloneScope alone;  // whoever asks, a socket's thread among them
    png_ = io::encode_image(map_->picture(latents_), io::ImageFormat::PNG, {.compression = 1});
    map_.reset(), latents_ = {};
  }
  return png_;
}

}  // namespace sf::server
