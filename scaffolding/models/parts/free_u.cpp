#include "scaffolding/models/parts/free_u.h"

#include <charconv>
#include <cmath>
#include <numbers>

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

// Waves of the frequencies (0, 0), (0, 1), (1, 0) and (1, 1) over H x W, [H * W, 8] in float32: a cosine and a sine of
// each, orthogonal and of length 1. An axis of length 1 has frequency 0 alone.
Tensor lowest_waves(int64_t height, int64_t width, Device device) {
  auto angles = [&](int64_t n) { return arange(0, n, 1, kFloat32, device) * (2 * std::numbers::pi / double(n)); };
  const Tensor down = angles(height).unsqueeze(1).expand({height, width}),
               right = angles(width).unsqueeze(0).expand({height, width});
  Tensors waves{full({height, width}, 1, kFloat32, device)};
  auto add = [&](const Tensor& angle) { waves.insert(waves.end(), {cos(angle), sin(angle)}); };
  if (width > 1) add(right);
  if (height > 1) add(down);
  if (width > 1 && height > 1) add(down + right);
  const Tensor all = stack(waves, -1).view({height * width, int64_t(waves.size())});
  return all * (1 / std::sqrt(double(height * width)));
}

void check_finite(const FreeU& f) {
  for (double factor : {f.s1, f.s2, f.b1, f.b2})
    SF_CHECK(std::isfinite(factor), "FreeU: s1, s2, b1 and b2 must be finite numbers, got ", factor);
}

}  // namespace

Tensor scale_lowest_frequencies(const Tensor& x, double scale) {
  SF_CHECK(x && x.ndim() == 4, "scale_lowest_frequencies: x must be [B, C, H, W], got ", x ? x.shape() : Shape());
  const int64_t height = x.size(2), width = x.size(3);
  const Tensor waves = lowest_waves(height, width, x.device());
  // Pixels by channels, as channels last have them.
  const Tensor pixels = x.permute({0, 2, 3, 1}).reshape({x.size(0), height * width, x.size(1)}).to(kFloat32);
  const Tensor lowest = matmul(waves, matmul(waves.transpose(0, 1), pixels));
  const Tensor y = (pixels + lowest * (scale - 1)).to(x.dtype());
  return y.view({x.size(0), height, width, x.size(1)}).permute({0, 3, 1, 2});
}

void FreeUStage::apply(Tensor& h, Tensor& skip_connection) const {
  const int64_t half = h.size(1) / 2;
  h = cat({h.slice(1, 0, half) * backbone, h.slice(1, half)}, 1);
  skip_connection = scale_lowest_frequencies(skip_connection, skip);
}

std::optional<FreeU> free_u_of(std::string_view text) {
  if (text.empty()) return std::nullopt;
  FreeU f{};
  const char *at = text.data(), *end = at + text.size();
  bool whole = true;
  for (double* factor : {&f.s1, &f.s2, &f.b1, &f.b2}) {
    const auto [rest, failed] = std::from_chars(at, end, *factor);
    whole = whole && failed == std::errc() && (factor == &f.b2 ? rest == end : rest < end && *rest == ',');
    if (!whole) break;
    at = rest + 1;
  }
  SF_CHECK(whole, "FreeU: must be four numbers S1,S2,B1,B2, such as 0.9,0.2,1.5,1.6, got '", text, "'");
  check_finite(f);
  return f;
}

bool set_free_u(nn::Module& model, const std::optional<FreeU>& f) {
  if (f) check_finite(*f);
  const bool on = f && f->s1 != 0 && f->s2 != 0 && f->b1 != 0 && f->b2 != 0;
  int64_t level = 0;
  for (auto& m : nn::named_modules(model))
    if (auto* block = dynamic_cast<TakesFreeU*>(m.module)) {
      block->free_u.reset();
      if (on && level < 2) block->free_u = level == 0 ? FreeUStage{f->b1, f->s1} : FreeUStage{f->b2, f->s2};
      ++level;
    }
  return level > 0;
}

}  // namespace sf::models
