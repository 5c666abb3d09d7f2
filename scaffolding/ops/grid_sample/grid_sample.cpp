#include "scaffolding/ops/grid_sample/grid_sample.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/grid_sample/kernel.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<GridSample> grid_sample_kernel{"grid_sample"};
constinit KernelTable<GridSampleBackward> grid_sample_backward_kernel{"grid_sample_backward"};

namespace {

constexpr const char* kOp = "grid_sample";

struct How {
  GridSample::Mode mode;
  GridSample::Padding padding;
  bool align_corners;
};

How how_from(const std::string& mode, const std::string& padding, bool align_corners) {
  SF_CHECK(mode == "bilinear" || mode == "nearest" || mode == "bicubic", kOp,
           ": mode must be 'bilinear', 'nearest' or 'bicubic', got '", mode, "'");
  SF_CHECK(padding == "zeros" || padding == "border" || padding == "reflection", kOp,
           ": padding_mode must be 'zeros', 'border' or 'reflection', got '", padding, "'");
  return {mode == "bilinear"  ? GridSample::Linear
          : mode == "nearest" ? GridSample::Nearest
                              : GridSample::Cubic,
          padding == "zeros"    ? GridSample::Zeros
          : padding == "border" ? GridSample::Border
                                : GridSample::Reflection,
          align_corners};
}

// x is input, or its gradient: [n, channels, (z,) y, x].
GridSample plan(const Tensor& x, const Tensor& grid, const How& how) {
  int dims = int(x.ndim() - 2);
  GridSample g{};
  g.input = x.data_ptr(), g.grid = grid.data_ptr(), g.dtype = x.dtype(), g.device = x.device();
  g.n = x.shape()[0], g.channels = x.shape()[1], g.points = 1, g.dims = dims;
  for (int d = 0; d < 3; ++d) g.size[d] = d < dims ? x.shape()[x.ndim() - 1 - d] : 1;
  for (int d = 0; d < dims; ++d) g.points *= grid.shape()[1 + d];
  g.mode = how.mode, g.padding = how.padding, g.align_corners = how.align_corners;
  return g;
}

// ---- as maths: for derivatives of derivatives, and for devices without a kernel

// The place c inside [0, size - 1], as padding says.
Tensor padded(const Tensor& c, int64_t size, const How& how) {
  double last = double(size - 1);
  if (how.padding == GridSample::Zeros) return c;
  if (how.padding == GridSample::Border) return clamp(c, 0.0, last);
  double low = how.align_corners ? 0 : -0.5, span = how.align_corners ? last : double(size);
  if (span == 0) return c * 0.0;
  Tensor from = abs(c - low), turns = floor(from.detach() / span), rest = from - turns * span;
  Tensor back = ne(remainder(turns, wrapped(2.0)), wrapped(0.0));
  return clamp(where(back, span - rest, rest) + low, 0.0, last);
}

// K pixels of each place along one dimension or more, [n, K, points]: where they are (int64, within the picture),
// whether they were in it, and their weights.
struct Taps {
  Tensor at, inside, weight;
};

Taps taps_along(const Tensor& numbers, int64_t size, const How& how) {
  double last = double(size - 1), scale = (how.align_corners ? last : double(size)) / 2;
  Tensor c = numbers * scale + last / 2, pixel, weight;
  if (how.mode != GridSample::Cubic) c = padded(c, size, how);
  auto from = [&](int64_t first, int64_t count) {
    return floor(c.detach()) + arange(first, first + count, 1, c.dtype(), c.device()).reshape({1, count, 1});
  };
  Tensor t = c - floor(c.detach());
  if (how.mode == GridSample::Nearest) {
    pixel = round(c.detach()), weight = c * 0.0 + 1.0;  // a gradient of 0
  } else if (how.mode == GridSample::Linear) {
    pixel = from(0, 2), weight = cat({1.0 - t, t}, 1);
  } else {
    constexpr double a = -0.75;  // Keys' cubic convolution, as in torch
    auto near = [](const Tensor& x) { return ((a + 2) * x - (a + 3)) * x * x + 1.0; };
    auto far = [](const Tensor& x) { return (x - 1.0) * square(x - 2.0) * a; };
    pixel = padded(from(-1, 4), size, how), weight = cat({far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)}, 1);
  }
  return {to_dtype(clamp(where(isfinite(pixel), pixel, wrapped(0.0)), 0.0, last), kInt64),
          logical_and(ge(pixel, wrapped(0.0)), le(pixel, wrapped(last))), weight};
}

// The taps of slow and fast dimensions together, the fast one having `size` pixels.
Taps joined(const Taps& slow, const Taps& fast, int64_t size) {
  auto of_all = [](const Tensor& x) { return x.flatten(1, 2); };
  return {of_all(slow.at.unsqueeze(2) * size + fast.at.unsqueeze(1)),
          of_all(logical_and(slow.inside.unsqueeze(2), fast.inside.unsqueeze(1))),
          of_all(slow.weight.unsqueeze(2) * fast.weight.unsqueeze(1))};
}

Tensor composed(const Tensor& x, const Tensor& grid, const How& how) {
  GridSample g = plan(x, grid, how);
  Shape shape{g.n, g.channels};
  for (int d = 0; d < g.dims; ++d) shape.push_back(grid.shape()[1 + d]);
  Tensor places = grid.reshape({g.n, 1, g.points, g.dims});
  auto along = [&](int d) { return taps_along(places.select(-1, d), g.size[d], how); };
  Taps t = joined(g.dims == 3 ? joined(along(2), along(1), g.size[1]) : along(1), along(0), g.size[0]);
  int64_t taps = t.at.shape()[1], all = taps * g.points;
  Tensor inside = t.inside.reshape({g.n, 1, all}), weight = where(t.inside, t.weight, wrapped(0.0));
  Tensor seen = gather(x.reshape({g.n, g.channels, g.size[0] * g.size[1] * g.size[2]}), 2,
                       t.at.reshape({g.n, 1, all}).expand({g.n, g.channels, all}));
  Tensor parts = where(inside, seen, wrapped(0.0)) * weight.reshape({g.n, 1, all});
  return sum(parts.reshape({g.n, g.channels, taps, g.points}), {2}).reshape(shape);
}

// ---- with kernels

// x and grid in one dtype, float32 or float64.
Tensor sampled(const Tensor& x, const Tensor& grid, const How& how) {
  Shape shape{x.shape()[0], x.shape()[1]};
  for (int64_t d = 1; d + 1 < grid.ndim(); ++d) shape.push_back(grid.shape()[d]);
  Tensor at, seen, y;
  bool channels_last = !x.is_contiguous() && x.is_contiguous(MemoryFormat::ChannelsLast);
  {
    autograd::NoGrad off;
    at = contiguous(grid), seen = channels_last ? x : contiguous(x);
    y = channels_last ? empty_strided(shape, channels_last_strides(shape), x.dtype(), x.device())
                      : empty(shape, x.dtype(), x.device());
  }
  GridSample g = plan(seen, at, how);
  g.out = y.data_ptr(), g.channels_last = channels_last;
  auto kernel = grid_sample_kernel.find(x.device(), g);
  if (!kernel) return composed(x, grid, how);
  if (y.numel() > 0) kernel(g);
  auto backward = [x = autograd::save(x), grid = autograd::save(grid), how, wants_x = x.requires_grad(),
                   wants_grid = grid.requires_grad()](const Tensor& dy) -> Tensors {
    Tensor v = contiguous(x.get()), at = contiguous(grid.get()), d = contiguous(dy);
    Tensor dx = wants_x ? zeros(v.shape(), v.dtype(), v.device()) : Tensor(),
           dgrid = wants_grid ? zeros(at.shape(), at.dtype(), at.device()) : Tensor();
    GridSampleBackward b{plan(v, at, how), d.data_ptr(), dx ? dx.data_ptr() : nullptr,
                         dgrid ? dgrid.data_ptr() : nullptr};
    auto kernel = grid_sample_backward_kernel.find(v.device(), b);
    SF_CHECK_AS(NotSupported, kernel, "grid_sample_backward: no kernel for ", v.dtype(), " on ", v.device());
    if (d.numel() > 0) kernel(b);
    return {dx, dgrid};
  };
  auto reference = [how](const Tensors& in) -> Tensors { return {composed(in[0], in[1], how)}; };
  return autograd::record(kOp, y, {x, grid}, backward, reference);
}

}  // namespace

Tensor grid_sample(const Tensor& input, const Tensor& grid, const std::string& mode, const std::string& padding_mode,
                   std::optional<bool> align_corners) {
  check_defined(kOp, "input", input);
  check_defined(kOp, "grid", grid);
  check_floating(kOp, "input", input);
  SF_CHECK_AS(TypeError, !is_float8(input.dtype()), kOp, ": ", input.dtype(),
              " is storage only; convert it to compute");
  SF_CHECK_AS(TypeError, grid.dtype() == input.dtype(), kOp, ": grid must have the dtype of input, ", input.dtype(),
              ", got ", grid.dtype());
  check_same_device(kOp, input, grid);
  How how = how_from(mode, padding_mode, align_corners.value_or(false));
  int64_t dims = input.ndim() - 2;
  SF_CHECK(dims == 2 || dims == 3, kOp, ": input must be [N, C, H, W] or [N, C, D, H, W], got ", input.shape());
  SF_CHECK(grid.ndim() == input.ndim() && grid.shape().back() == dims && grid.shape()[0] == input.shape()[0], kOp,
           ": grid must be [", input.shape()[0], dims == 2 ? ", Ho, Wo, 2]" : ", Do, Ho, Wo, 3]", " for input ",
           input.shape(), ", got ", grid.shape());
  SF_CHECK(how.mode != GridSample::Cubic || dims == 2, kOp, ": mode 'bicubic' needs a 4-D input, got ", input.shape());
  int64_t pixels = 1;
  for (int64_t d = 0; d < dims; ++d) {
    SF_CHECK(input.shape()[2 + d] > 0, kOp, ": input must have pixels, got ", input.shape());
    SF_CHECK(!__builtin_mul_overflow(pixels, input.shape()[2 + d], &pixels) && pixels <= INT32_MAX, kOp,
             ": input has more than 2^31 pixels, got ", input.shape());
  }
  DType wide = input.dtype() == kFloat64 ? kFloat64 : kFloat32;  // 16 bits cannot name a place
  return to_dtype(sampled(to_dtype(input, wide), to_dtype(grid, wide), how), input.dtype());
}

Tensor affine_grid(const Tensor& theta, const Shape& size, std::optional<bool> align_corners) {
  const char* op = "affine_grid";
  check_defined(op, "theta", theta);
  check_floating(op, "theta", theta);
  int64_t dims = size.size() - 2;
  SF_CHECK(dims == 2 || dims == 3, op, ": size must be [N, C, H, W] or [N, C, D, H, W], got ", size);
  for (auto s : size) SF_CHECK(s > 0, op, ": size must be positive, got ", size);
  SF_CHECK(theta.ndim() == 3 && theta.shape()[0] == size[0] && theta.shape()[1] == dims && theta.shape()[2] == dims + 1,
           op, ": theta must be [", size[0], dims == 2 ? ", 2, 3]" : ", 3, 4]", " for size ", size, ", got ",
           theta.shape());
  int64_t points = 1;
  Shape shape{size[0]};
  for (int64_t d = 2; d < size.size(); ++d) {
    SF_CHECK(!__builtin_mul_overflow(points, size[d], &points), op, ": size is too large, got ", size);
    shape.push_back(size[d]);
  }
  Tensor base;
  {
    autograd::NoGrad off;
    base = ones({points, dims + 1}, theta.dtype(), theta.device());
    Shape pixels(size.data() + 2, dims);
    pixels.push_back(dims + 1);
    Tensor rows = base.reshape(pixels);
    for (int64_t d = 0; d < dims; ++d) {  // of x, y and z
      int64_t n = size[size.size() - 1 - d];
      double end = n == 1 ? 0 : align_corners.value_or(false) ? 1 : double(n - 1) / double(n);
      Tensor line = linspace(-end, end, n, theta.dtype(), theta.device());
      for (int64_t k = 0; k < d; ++k) line = line.unsqueeze(-1);
      copy_bytes(rows.select(-1, d), line.expand(Shape(pixels.data(), dims)));
    }
  }
  shape.push_back(dims);
  return matmul(base.unsqueeze(0), theta.transpose(1, 2)).reshape(shape);
}

SF_OP(grid_sample, "input, grid, mode='bilinear', padding_mode='zeros', align_corners=None")
    .doc("input[N, C, H, W] at the places grid[N, Ho, Wo, 2] -> [N, C, Ho, Wo], and alike for volumes.")
    .like("F.grid_sample(input, grid, mode=mode, padding_mode=padding_mode, align_corners=bool(align_corners))")
    .kernels(grid_sample_kernel, grid_sample_backward_kernel);
SF_OP(affine_grid, "theta, size, align_corners=None")
    .doc("The grid of an affine map for grid_sample: theta[N, 2, 3] and size [N, C, H, W] -> [N, H, W, 2].")
    .like("F.affine_grid(theta, size, align_corners=bool(align_corners))");

}  // namespace sf
