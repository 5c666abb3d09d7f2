#include "scaffolding/models/parts/video_positions.h"

#include "scaffolding/core/default_device.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

constexpr int64_t kMostTokens = int64_t(1) << 28;

void check_grid(const char* who, int64_t embed_dim, const VideoGrid& g) {
  SF_CHECK(embed_dim > 0 && embed_dim % 16 == 0, who, ": embed_dim must be a multiple of 16, got ", embed_dim);
  const bool fits = g.frames > 0 && g.height > 0 && g.width > 0 && g.frames <= kMostTokens &&
                    g.height <= kMostTokens / g.frames && g.width <= kMostTokens / (g.frames * g.height);
  SF_CHECK(fits, who, ": frames, height and width must be at least 1, and their product at most ", kMostTokens,
           ", got ", g.frames, ", ", g.height, " and ", g.width);
}

// Tables [n, channels] of frames and of what stands second and third in each token's channels, as one.
Tensor over_grid(const VideoGrid& g, const Tensor& frames, const Tensor& second, const Tensor& third, bool rows_first) {
  const Shape sizes{g.frames, g.height, g.width, -1};
  auto rows = [&](const Tensor& t) { return t.unsqueeze(1).unsqueeze(0).expand(sizes); };
  auto columns = [&](const Tensor& t) { return t.unsqueeze(0).unsqueeze(0).expand(sizes); };
  return cat({frames.unsqueeze(1).unsqueeze(1).expand(sizes), rows_first ? rows(second) : columns(second),
              rows_first ? columns(third) : rows(third)},
             -1);
}

}  // namespace

Tensor sincos_positions_3d(int64_t embed_dim, const VideoGrid& g, double spatial_scale, double temporal_scale,
                           std::optional<Device> device) {
  const char* who = "sincos_positions_3d";
  check_grid(who, embed_dim, g);
  SF_CHECK(spatial_scale > 0 && temporal_scale > 0, who, ": scales must be above 0, got ", spatial_scale, " and ",
           temporal_scale);
  const Device place = device.value_or(default_device());
  auto table = [place](int64_t n, double scale, int64_t dim) {
    std::vector<double> places;
    // float32, as diffusers has them
    for (int64_t i = 0; i < n; ++i) places.push_back(double(float(i) / float(scale)));
    return sincos_positions(places, dim).to(place);
  };
  const int64_t spatial = embed_dim / 8 * 3;
  return over_grid(g, table(g.frames, temporal_scale, embed_dim / 4), table(g.width, spatial_scale, spatial),
                   table(g.height, spatial_scale, spatial), false)
      .reshape({g.frames, g.height * g.width, embed_dim});
}

Tensor rotary_positions_3d(int64_t embed_dim, const RotaryGrid& grid, std::optional<Device> device) {
  const VideoGrid& g = grid.size;
  check_grid("rotary_positions_3d", embed_dim, g);
  SF_CHECK(grid.theta > 0, "rotary_positions_3d: theta must be above 0, got ", grid.theta);
  const Device host{}, place = device.value_or(default_device());
  // [n, dim], both of a pair equal; in float32 throughout, as diffusers computes them
  auto angles = [&](const Tensor& places, int64_t dim) {
    const Tensor exponents = arange(0, dim, 2, kFloat32, host) / double(dim);
    const Tensor each = places.unsqueeze(1) * (1.0 / pow(wrapped(grid.theta), exponents)).unsqueeze(0);
    return stack({each, each}, -1).reshape({places.size(0), dim});
  };
  auto places = [&](int64_t n, size_t side) {
    if (!grid.crop) return arange(0, n, 1, kFloat32, host);
    const double begin = (*grid.crop)[side], end = (*grid.crop)[side + 2];
    return linspace(begin, end * double(n - 1) / double(n), n, kFloat32, host);
  };
  const int64_t spatial = embed_dim / 8 * 3;
  const Tensor t = angles(arange(0, g.frames, 1, kFloat32, host), embed_dim / 4),
               h = angles(places(g.height, 0), spatial), w = angles(places(g.width, 1), spatial);
  auto turned = [&](Tensor (*f)(const Tensor&)) {
    return over_grid(g, f(t).to(place), f(h).to(place), f(w).to(place), true)
        .reshape({g.frames * g.height * g.width, embed_dim});
  };
  return stack({turned(&cos), turned(&sin)});
}

}  // namespace sf::models
