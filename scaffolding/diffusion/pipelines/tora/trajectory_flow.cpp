#include "scaffolding/diffusion/pipelines/tora/trajectory_flow.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <utility>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

constexpr int64_t kMostKernel = 1023;

struct PixelFlow {
  double x = 0, y = 0;
};
using SparseFlow = std::map<std::pair<int64_t, int64_t>, PixelFlow>;  // by (y, x)

std::vector<SparseFlow> sparse_flow(const std::vector<Trajectory>& trajectories, int64_t num_frames, int64_t height,
                                    int64_t width, const Canvas& canvas) {
  check_trajectories(trajectories, canvas);
  std::vector<SparseFlow> frames;
  for (auto& trajectory : trajectories) {
    const std::vector<PixelPoint> at = pixels_of_frames(trajectory, num_frames, height, width, canvas);
    frames.resize(size_t(num_frames));
    for (size_t i = 1; i < at.size(); ++i)
      frames[i][{at[i - 1].y, at[i - 1].x}] = {double(at[i].x - at[i - 1].x), double(at[i].y - at[i - 1].y)};
  }
  return frames;
}

// Where a place outside of [0, n) lies when a picture is reflected at its edges, which are not repeated.
int64_t reflected(int64_t i, int64_t n) {
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1);
  i = (i % period + period) % period;
  return i < n ? i : period - i;
}

// One dimension of a pixel's spread: what place p of n gets of a 1 at `centre`, its reflections included.
struct Spread {
  std::vector<double> weights;
  int64_t first = 0, last = 0;  // beyond them there is nothing

  Spread(int64_t centre, int64_t n, const std::vector<double>& gaussian) : weights(size_t(n), 0.0), first(n), last(-1) {
    const auto radius = int64_t(gaussian.size()) - 1;
    for (int64_t source = -radius; source < n + radius; ++source) {
      if (reflected(source, n) != centre) continue;
      const int64_t from = std::max<int64_t>(0, source - radius), to = std::min(n - 1, source + radius);
      for (int64_t p = from; p <= to; ++p) weights[size_t(p)] += gaussian[size_t(std::abs(p - source))];
      first = std::min(first, from);
      last = std::max(last, to);
    }
  }
};

std::vector<double> gaussian_of(const TrajectoryFlowOptions& o) {  // at distances 0, 1, ...
  SF_CHECK(o.kernel_size >= 1 && o.kernel_size <= kMostKernel && o.kernel_size % 2 == 1,
           "trajectory_flow: kernel_size must be odd and between 1 and ", kMostKernel, ", got ", o.kernel_size);
  SF_CHECK(o.sigma >= 0 && std::isfinite(o.sigma), "trajectory_flow: sigma must be 0 or above, got ", o.sigma);
  std::vector<double> out{1.0};
  if (o.sigma > 0)
    for (int64_t d = 1; d <= o.kernel_size / 2; ++d) out.push_back(std::exp(-double(d * d) / (2 * o.sigma * o.sigma)));
  return out;
}

void spread(const SparseFlow& points, const std::vector<double>& gaussian, int64_t height, int64_t width, float* to) {
  for (auto& [place, flow] : points) {
    if (flow.x == 0 && flow.y == 0) continue;
    const Spread rows(place.first, height, gaussian), columns(place.second, width, gaussian);
    for (int64_t y = rows.first; y <= rows.last; ++y) {
      const double along_x = rows.weights[size_t(y)] * flow.x, along_y = rows.weights[size_t(y)] * flow.y;
      for (int64_t x = columns.first; x <= columns.last; ++x) {
        float* pixel = to + 2 * (y * width + x);
        pixel[0] += float(columns.weights[size_t(x)] * along_x);
        pixel[1] += float(columns.weights[size_t(x)] * along_y);
      }
    }
  }
}

// ---- colours

struct Colour {
  float red = 0, green = 0, blue = 0;  // 0 to 1
};
constexpr int kColours = 55;

// From red over yellow, green, cyan, blue and magenta back to red, in steps as many as one tells apart.
std::array<Colour, kColours> make_wheel() {
  struct Way {
    int steps, rising, falling;  // channels; -1: none
    std::array<bool, 3> full;
  };
  constexpr Way ways[] = {{15, 1, -1, {true, false, false}}, {6, -1, 0, {false, true, false}},
                          {4, 2, -1, {false, true, false}},  {11, -1, 1, {false, false, true}},
                          {13, 0, -1, {false, false, true}}, {6, -1, 2, {true, false, false}}};
  std::array<Colour, kColours> wheel;
  size_t at = 0;
  for (auto& way : ways)
    for (int i = 0; i < way.steps; ++i) {
      std::array<float, 3> c{};
      for (int k = 0; k < 3; ++k) {
        const int part = 255 * i / way.steps;
        const int level = k == way.rising ? part : k == way.falling ? 255 - part : way.full[size_t(k)] ? 255 : 0;
        c[size_t(k)] = float(level) / 255.0f;
      }
      wheel[at++] = {c[0], c[1], c[2]};
    }
  return wheel;
}

// u, v: divided by the longest flow
std::array<uint8_t, 3> colour_of(float u, float v, const std::array<Colour, kColours>& wheel) {
  const float norm = std::sqrt(u * u + v * v);
  const float place = (std::atan2(-v, -u) / std::numbers::pi_v<float> + 1) / 2 * (kColours - 1);
  const int below = std::clamp(int(place), 0, kColours - 1), above = (below + 1) % kColours;
  const float part = place - float(below);
  auto level = [&](float a, float b) {
    const float colour = 1 - norm * (1 - ((1 - part) * a + part * b));
    return uint8_t(std::clamp(std::floor(255 * colour), 0.0f, 255.0f));
  };
  const Colour &a = wheel[size_t(below)], &b = wheel[size_t(above)];
  return {level(a.red, b.red), level(a.green, b.green), level(a.blue, b.blue)};
}

// The longest flow of pictures [N, 2, H, W] of any strides; not finite where one is not.
float longest(const Tensor& flow) {
  const Shape &size = flow.shape(), &step = flow.strides();
  const auto* from = flow.data<float>();
  std::vector<float> of_frames(size_t(size[0]), 0.0f);
  parallel_for(size[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float most = 0;
      bool finite = true;
      for (int64_t y = 0; y < size[2]; ++y) {
        const float* row = from + n * step[0] + y * step[2];
        for (int64_t x = 0; x < size[3]; ++x) {
          const float u = row[x * step[3]], v = row[x * step[3] + step[1]], square = u * u + v * v;
          most = std::max(most, square);
          finite &= std::isfinite(square);
        }
      }
      of_frames[size_t(n)] = finite ? most : std::numeric_limits<float>::infinity();
    }
  });
  return std::sqrt(of_frames.empty() ? 0.0f : *std::max_element(of_frames.begin(), of_frames.end()));
}

}  // namespace

Tensor trajectory_flow(const std::vector<Trajectory>& trajectories, int64_t num_frames, int64_t height, int64_t width,
                       const TrajectoryFlowOptions& options) {
  const std::vector<double> gaussian = gaussian_of(options);
  const std::vector<SparseFlow> frames = sparse_flow(trajectories, num_frames, height, width, options.canvas);
  Tensor out = zeros({num_frames, height, width, 2}, kFloat32, Device::CPU);
  auto* to = out.data<float>();
  parallel_for(num_frames, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      spread(frames[size_t(i)], gaussian, height, width, to + i * height * width * 2);
  });
  return out;
}

Tensor flow_to_image(const Tensor& flow) {
  check_defined("flow_to_image", "flow", flow);
  check_floating("flow_to_image", "flow", flow);
  SF_CHECK((flow.ndim() == 4 || flow.ndim() == 3) && flow.size(-3) == 2,
           "flow_to_image: flow must be [N, 2, H, W] or [2, H, W], got ", flow.shape());
  Tensor pictures = flow.detach().cpu().to(kFloat32);
  if (flow.ndim() == 3) pictures = pictures.unsqueeze(0);
  const float most = longest(pictures);
  SF_CHECK(std::isfinite(most), "flow_to_image: flow must be finite, and its squares too");
  static const std::array<Colour, kColours> wheel = make_wheel();

  const float scale = most + std::numeric_limits<float>::epsilon();
  const Shape &size = pictures.shape(), &step = pictures.strides();
  const int64_t pixels = size[2] * size[3];
  Tensor out = full({size[0], 3, size[2], size[3]}, 255, kUInt8, Device::CPU);
  const auto* from = pictures.data<float>();
  auto* to = out.data<uint8_t>();
  parallel_for(size[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t y = 0; y < size[2]; ++y)
        for (int64_t x = 0; x < size[3]; ++x) {
          const float* pixel = from + n * step[0] + y * step[2] + x * step[3];
          if (pixel[0] == 0 && pixel[step[1]] == 0) continue;
          const auto colour = colour_of(pixel[0] / scale, pixel[step[1]] / scale, wheel);
          for (int64_t c = 0; c < 3; ++c) to[(n * 3 + c) * pixels + y * size[3] + x] = colour[size_t(c)];
        }
  });
  return flow.ndim() == 3 ? out.squeeze(0) : out;
}

Tensor video_of_flow(const Tensor& flow) {
  check_defined("video_of_flow", "flow", flow);
  SF_CHECK(flow.ndim() == 4 && flow.size(3) == 2, "video_of_flow: flow must be [num_frames, height, width, 2], got ",
           flow.shape());
  const Tensor pictures = flow_to_image(flow.permute({0, 3, 1, 2}));
  std::array<float, 256> values;
  for (size_t level = 0; level < values.size(); ++level) values[level] = float(level) / 127.5f - 1;
  Tensor out = empty({1, flow.size(0), 3, flow.size(1), flow.size(2)}, kFloat32, Device::CPU);
  const auto* from = pictures.data<uint8_t>();
  auto* to = out.data<float>();
  parallel_for(pictures.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = values[from[i]];
  });
  return out;
}

Tensor video_flow(const std::vector<Trajectory>& trajectories, int64_t num_frames, int64_t height, int64_t width,
                  const TrajectoryFlowOptions& options) {
  return video_of_flow(trajectory_flow(trajectories, num_frames, height, width, options));
}

}  // namespace sf::diffusion
