#include "scaffolding/ops/interpolate/interpolate.h"

#include <cmath>

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/spatial/resample.h"

namespace sf {

namespace {

using spatial::Map;
using spatial::Taps;
// Weights are kept for every output of a dimension: sizes beyond any picture are refused before they fill memory.
constexpr int64_t kLargest = int64_t(1) << 24;
using Lists = std::vector<std::vector<std::pair<int64_t, double>>>;

// One spatial dimension. scale: the user's factor where it is to be used, else 0.
struct Dim {
  int64_t in, out;
  double scale;
  bool align_corners;
};

// R: float64, or float32 where a coordinate is rounded to a position and must round as torch's does.
template <class R> R ratio(const Dim& d) {
  if (d.align_corners) return d.out > 1 ? R(d.in - 1) / R(d.out - 1) : R(0);
  return d.scale > 0 ? R(1.0 / d.scale) : R(d.in) / R(d.out);
}
template <class R> R source(const Dim& d, R r, int64_t o) {
  return d.align_corners ? r * R(o) : r * (R(o) + R(0.5)) - R(0.5);
}

template <class R> Map nearest(const Dim& d, bool exact) {
  R r = ratio<R>(d);
  Map m;
  for (int64_t o = 0; o < d.out; ++o) {
    R s = exact ? std::max(R(0), source(d, r, o)) + R(0.5) : r * R(o);
    m.push_back(std::min(int64_t(std::floor(float(s))), d.in - 1));
  }
  return m;
}

Lists linear(const Dim& d) {
  double r = ratio<double>(d);
  Lists lists;
  for (int64_t o = 0; o < d.out; ++o) {
    double s = d.in == d.out ? double(o) : std::max(0.0, source(d, r, o));
    int64_t i = std::min(int64_t(s), d.in - 1);
    double t = std::clamp(s - double(i), 0.0, 1.0);
    if (i + 1 < d.in && d.in != d.out) lists.push_back({{i, 1 - t}, {i + 1, t}});
    else lists.push_back({{i, 1.0}});
  }
  return lists;
}

// Keys' cubic convolution at distance x: a = -0.75 without and -0.5 with antialiasing, as in torch.
double cubic_weight(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

Lists cubic(const Dim& d) {
  double r = ratio<double>(d);
  Lists lists;
  for (int64_t o = 0; o < d.out; ++o) {
    double s = source(d, r, o);
    int64_t i = std::min(int64_t(std::floor(s)), d.in - 1);
    double t = std::clamp(s - double(i), 0.0, 1.0);
    auto& list = lists.emplace_back();
    for (int64_t k = -1; k <= 2; ++k)
      list.push_back({std::clamp<int64_t>(i + k, 0, d.in - 1), cubic_weight(double(k) - t, -0.75)});
  }
  return lists;
}

Lists antialiased(const Dim& d, bool is_cubic) {
  double r = ratio<double>(d), half = is_cubic ? 2 : 1;  // half the filter's width
  double support = r >= 1 ? half * r : half, shrink = r >= 1 ? 1 / r : 1;
  Lists lists;
  for (int64_t o = 0; o < d.out; ++o) {
    double center = r * (double(o) + 0.5);
    int64_t begin = std::max<int64_t>(int64_t(center - support + 0.5), 0),
            end = std::min(int64_t(center + support + 0.5), d.in);
    auto& list = lists.emplace_back();
    double total = 0;
    for (int64_t i = begin; i < end; ++i) {
      double x = (double(i) - center + 0.5) * shrink;
      list.push_back({i, is_cubic ? cubic_weight(x, -0.5) : std::max(0.0, 1 - std::abs(x))});
      total += list.back().second;
    }
    for (auto& [i, w] : list) w = total != 0 ? w / total : w;
  }
  return lists;
}

Tensor resized(const Tensor& x, const std::vector<Dim>& dims, const std::string& mode, bool antialias) {
  if (mode == "nearest" || mode == "nearest-exact") {
    bool exact = mode == "nearest-exact";
    std::vector<Map> maps;
    for (auto& d : dims) maps.push_back(x.dtype() == kFloat64 ? nearest<double>(d, exact) : nearest<float>(d, exact));
    return spatial::remap("interpolate", x, maps);
  }
  std::vector<Taps> taps;
  for (auto& d : dims) {
    if (mode == "area") taps.push_back(spatial::adaptive_average(d.in, d.out));
    else
      taps.push_back(spatial::make_taps(d.in, antialias           ? antialiased(d, mode == "bicubic")
                                              : mode == "bicubic" ? cubic(d)
                                                                  : linear(d)));
  }
  return spatial::resample("interpolate", x, taps);
}

void check_mode(const Tensor& x, const std::string& mode, std::optional<bool> align_corners, bool antialias) {
  int64_t rank = x.ndim();
  SF_CHECK(rank >= 3 && rank <= 5, "interpolate: input must be [N, C, ...] with 1 to 3 spatial dimensions, got ",
           x.shape());
  bool any_rank = mode == "nearest" || mode == "nearest-exact" || mode == "area";
  SF_CHECK(any_rank || mode == "linear" || mode == "bilinear" || mode == "bicubic" || mode == "trilinear",
           "interpolate: mode must be 'nearest', 'nearest-exact', 'linear', 'bilinear', 'bicubic', 'trilinear' or "
           "'area', got '",
           mode, "'");
  int64_t wanted = mode == "linear" ? 3 : mode == "trilinear" ? 5 : 4;
  SF_CHECK(any_rank || rank == wanted, "interpolate: mode '", mode, "' needs a ", wanted, "-D input, got ", x.shape());
  SF_CHECK(!any_rank || !align_corners,
           "interpolate: align_corners is an option of the linear and cubic modes, got mode '", mode, "'");
  SF_CHECK(!antialias || mode == "bilinear" || mode == "bicubic",
           "interpolate: antialias is an option of 'bilinear' and 'bicubic', got mode '", mode, "'");
  if (mode != "nearest" && mode != "nearest-exact") check_floating("interpolate", "input", x);
}

}  // namespace

Tensor interpolate(const Tensor& input, const std::optional<Shape>& size, const std::optional<Floats>& scale_factor,
                   const std::string& mode, std::optional<bool> align_corners,
                   std::optional<bool> recompute_scale_factor, bool antialias) {
  SF_AUTOCAST(interpolate, input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias);
  check_defined("interpolate", "input", input);
  check_mode(input, mode, align_corners, antialias);
  SF_CHECK(size.has_value() != scale_factor.has_value(), "interpolate: needs either size or scale_factor");
  SF_CHECK(!recompute_scale_factor.value_or(false) || scale_factor,
           "interpolate: recompute_scale_factor needs scale_factor");
  int64_t spatial_dims = input.ndim() - 2, given = size ? size->size() : int64_t(scale_factor->size());
  SF_CHECK(given == 1 || given == spatial_dims, "interpolate: ", size ? "size" : "scale_factor",
           " must have one entry or ", spatial_dims, ", got ", given);
  std::vector<Dim> dims;
  for (int64_t i = 0; i < spatial_dims; ++i) {
    int64_t n = input.shape()[2 + i], at = given == 1 ? 0 : i;
    Dim d{n, 0, 0, align_corners.value_or(false)};
    if (size) {
      d.out = (*size)[at];
    } else {
      double scale = (*scale_factor)[size_t(at)];
      SF_CHECK(scale > 0 && double(n) * scale <= double(kLargest),
               "interpolate: scale_factor must be positive, and sizes at most ", kLargest, ", got ", scale, " for ", n);
      d.out = int64_t(double(n) * scale);
      if (!recompute_scale_factor.value_or(false)) d.scale = scale;
    }
    SF_CHECK(n > 0 && d.out > 0 && n <= kLargest && d.out <= kLargest,
             "interpolate: sizes must be positive (and at most ", kLargest, "), got ", n, " to ", d.out,
             " in dimension ", 2 + i, " of ", input.shape());
    dims.push_back(d);
  }
  return resized(input, dims, mode, antialias);
}

SF_OP(interpolate,
      "input, size=None, scale_factor=None, mode='nearest', align_corners=None, recompute_scale_factor=None, "
      "antialias=False")
    .doc("input[N, C, ...] resized along its 1 to 3 spatial dimensions.")
    .like("torch.nn.functional.interpolate")
    .kernels(remap_kernel, remap_backward_kernel, resample_kernel);

}  // namespace sf
