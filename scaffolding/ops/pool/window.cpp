#include "scaffolding/ops/pool/window.h"

namespace sf::pool {

// Tables of windows are kept for every output of a dimension:
// sizes beyond any signal are refused before they fill memory.
static constexpr int64_t kLargest = int64_t(1) << 24;

void check_input(const char* op, const Tensor& x, int64_t dims) {
  check_defined(op, "input", x);
  check_floating(op, "input", x);
  SF_CHECK(x.ndim() == dims + 1 || x.ndim() == dims + 2, op, ": input must be [N, C, ...] or [C, ...] with ", dims,
           " spatial dimensions, got ", x.shape());
  for (int64_t i = 1; i <= dims; ++i)
    SF_CHECK(x.size(-i) > 0 && x.size(-i) <= kLargest, op, ": spatial dimensions must be between 1 and ", kLargest,
             ", got ", x.shape());
}

Shape spread(const char* op, const char* name, const Shape& values, int64_t dims, int64_t least) {
  SF_CHECK(values.size() == 1 || values.size() == dims, op, ": ", name, " must have one entry or ", dims, ", got ",
           values);
  Shape all;
  for (int64_t i = 0; i < dims; ++i) {
    all.push_back(values[values.size() == 1 ? 0 : i]);
    SF_CHECK(all.back() >= least && all.back() <= kLargest, op, ": ", name, " must be at least ", least,
             " (and at most ", kLargest, "), got ", values);
  }
  return all;
}

Windows windows(const char* op, const Tensor& x, int64_t dims, const WindowArguments& a) {
  const auto& [kernel_size, stride, padding, dilation, ceil_mode] = a;
  check_input(op, x, dims);
  Windows w;
  w.kernel = spread(op, "kernel_size", kernel_size, dims, 1);
  w.stride = stride.empty() ? w.kernel : spread(op, "stride", stride, dims, 1);
  w.padding = spread(op, "padding", padding, dims, 0);
  w.dilation = spread(op, "dilation", dilation, dims, 1);
  for (int64_t i = 0; i < dims; ++i) {
    int64_t n = x.shape()[x.ndim() - dims + i], reach = w.dilation[i] * (w.kernel[i] - 1) + 1, p = w.padding[i],
            s = w.stride[i];
    SF_CHECK(p <= reach / 2, op, ": padding must be at most half of the kernel, got padding ", padding,
             " and kernel_size ", kernel_size);
    int64_t room = n + 2 * p - reach;
    SF_CHECK(room >= 0 || (ceil_mode && room + s > 0), op, ": the kernel ", kernel_size, " with dilation ", dilation,
             " does not fit into the padded input ", x.shape());
    int64_t out = (room + (ceil_mode ? s - 1 : 0)) / s + 1;
    if (ceil_mode && (out - 1) * s >= n + p) --out;  // the last window must start inside the input or its left padding
    SF_CHECK(out > 0, op, ": the kernel ", kernel_size, " leaves no output for input ", x.shape());
    w.out.push_back(out);
  }
  return w;
}

Shape adaptive_sizes(const char* op, const Tensor& x, int64_t dims, const Shape& output_size) {
  check_input(op, x, dims);
  Shape out = spread(op, "output_size", output_size, dims, -1);
  for (int64_t i = 0; i < dims; ++i)
    if (out[i] == -1) out[i] = x.shape()[x.ndim() - dims + i];
  return out;
}

}  // namespace sf::pool
