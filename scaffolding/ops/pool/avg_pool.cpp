// Averages are separable sums: each dimension contributes the weight 1 / (its part of the divisor).
#include "scaffolding/autograd/autocast.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/pool/pool.h"
#include "scaffolding/ops/pool/window.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/spatial/resample.h"

namespace sf {

namespace {

Tensor avg_pool(const char* op, const Tensor& x, int64_t dims, const Shape& kernel_size, const Shape& stride,
                const Shape& padding, bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
  pool::Windows w = pool::windows(op, x, dims, {kernel_size, stride, padding, {1}, ceil_mode});
  SF_CHECK(!divisor_override || *divisor_override != 0, op, ": divisor_override must not be 0");
  std::vector<spatial::Taps> taps;
  for (int64_t d = 0; d < dims; ++d) {
    int64_t n = x.shape()[x.ndim() - dims + d];
    std::vector<std::vector<std::pair<int64_t, double>>> lists(static_cast<size_t>(w.out[d]));
    for (int64_t o = 0; o < w.out[d]; ++o) {
      int64_t begin = o * w.stride[d] - w.padding[d], end = std::min(begin + w.kernel[d], n + w.padding[d]),
              padded = end - begin;
      begin = std::max<int64_t>(begin, 0);
      end = std::min(end, n);
      double weight = divisor_override ? (d == 0 ? 1 / double(*divisor_override) : 1)
                                       : 1 / double(count_include_pad ? padded : end - begin);
      for (int64_t i = begin; i < end; ++i) lists[size_t(o)].push_back({i, weight});
    }
    taps.push_back(spatial::make_taps(n, lists));
  }
  return spatial::resample(op, x, taps);
}

Tensor adaptive_avg_pool(const char* op, const Tensor& x, int64_t dims, const Shape& output_size) {
  Shape out = pool::adaptive_sizes(op, x, dims, output_size);
  if (numel(out) == 1 && is_floating(x.dtype()) && x.numel() > 0) {
    Shape all;
    for (int64_t d = -dims; d < 0; ++d) all.push_back(d);
    return mean(x, all, true);
  }
  std::vector<spatial::Taps> taps;
  for (int64_t d = 0; d < dims; ++d) taps.push_back(spatial::adaptive_average(x.shape()[x.ndim() - dims + d], out[d]));
  return spatial::resample(op, x, taps);
}

}  // namespace

Tensor avg_pool1d(const Tensor& input, const Shape& kernel_size, const Shape& stride, const Shape& padding,
                  bool ceil_mode, bool count_include_pad) {
  return avg_pool("avg_pool1d", input, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, {});
}
Tensor avg_pool2d(const Tensor& input, const Shape& kernel_size, const Shape& stride, const Shape& padding,
                  bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
  return avg_pool("avg_pool2d", input, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}
Tensor avg_pool3d(const Tensor& input, const Shape& kernel_size, const Shape& stride, const Shape& padding,
                  bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
  SF_AUTOCAST(avg_pool3d, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
  return avg_pool("avg_pool3d", input, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}
Tensor adaptive_avg_pool1d(const Tensor& input, const Shape& output_size) {
  return adaptive_avg_pool("adaptive_avg_pool1d", input, 1, output_size);
}
Tensor adaptive_avg_pool2d(const Tensor& input, const Shape& output_size) {
  return adaptive_avg_pool("adaptive_avg_pool2d", input, 2, output_size);
}
Tensor adaptive_avg_pool3d(const Tensor& input, const Shape& output_size) {
  SF_AUTOCAST(adaptive_avg_pool3d, input, output_size);
  return adaptive_avg_pool("adaptive_avg_pool3d", input, 3, output_size);
}

SF_OP(avg_pool1d, "input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True")
    .doc("Averages of windows of the last dimension.")
    .like("torch.nn.functional.avg_pool1d")
    .kernels(resample_kernel);
SF_OP(avg_pool2d,
      "input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None")
    .doc("Averages of windows of the last 2 dimensions.")
    .like("torch.nn.functional.avg_pool2d")
    .kernels(resample_kernel);
SF_OP(avg_pool3d,
      "input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None")
    .doc("Averages of windows of the last 3 dimensions.")
    .like("torch.nn.functional.avg_pool3d")
    .kernels(resample_kernel);
SF_OP(adaptive_avg_pool1d, "input, output_size")
    .doc("Averages of the windows that divide the last dimension into output_size parts.")
    .like("torch.nn.functional.adaptive_avg_pool1d")
    .kernels(resample_kernel);
SF_OP(adaptive_avg_pool2d, "input, output_size")
    .doc("Averages of the windows that divide the last 2 dimensions into output_size parts.")
    .like("torch.nn.functional.adaptive_avg_pool2d")
    .kernels(resample_kernel);
SF_OP(adaptive_avg_pool3d, "input, output_size")
    .doc("Averages of the windows that divide the last 3 dimensions into output_size parts.")
    .like("torch.nn.functional.adaptive_avg_pool3d")
    .kernels(resample_kernel);

}  // namespace sf
