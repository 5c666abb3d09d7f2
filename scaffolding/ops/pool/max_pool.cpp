#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/pool/kernel.h"
#include "scaffolding/ops/pool/pool.h"
#include "scaffolding/ops/pool/window.h"
#include "scaffolding/ops/spatial/resample.h"

namespace sf {

using Result = std::tuple<Tensor, Tensor>;  // maxima and their places

constinit KernelTable<MaxPool> max_pool_kernel{"max_pool"};
constinit KernelTable<MaxPoolBackward> max_pool_backward_kernel{"max_pool_backward"};

namespace {

// Where the windows of each dimension begin and how many inputs they see.
struct Ranges {
  std::vector<int64_t> start[3], count[3];
  int64_t dilation[3] = {1, 1, 1};
  Shape out;
};

// Of each input in each dimension: the first output that sees it, and one past the last.
struct Viewers {
  std::vector<int64_t> first[3], last[3];

  Viewers(const Ranges& r, const spatial::Extent& in) {
    for (int d = 0; d < 3; ++d) {
      auto outputs = int64_t(r.start[d].size());
      first[d].assign(size_t(in.size[d]), outputs);
      last[d].assign(size_t(in.size[d]), 0);
      for (int64_t o = 0; o < outputs; ++o)
        for (int64_t k = 0; k < r.count[d][size_t(o)]; ++k) {
          auto i = size_t(r.start[d][size_t(o)] + k * r.dilation[d]);
          first[d][i] = std::min(first[d][i], o);
          last[d][i] = std::max(last[d][i], o + 1);
        }
    }
  }
};

Tensor flattened(const Tensor& x, int64_t dims) { return x.flatten(x.ndim() - dims, -1); }

Tensor backward(const char* op, const Tensor& dy, const Tensor& index, const spatial::Layout& like,
                const Viewers& viewers, const Shape& in_sizes, int64_t dims) {
  Shape full = dy.shape();
  for (int64_t i = 0; i < dims; ++i) full[full.size() - dims + i] = in_sizes[i];
  if (autograd::grad_enabled()) {  // the same in recorded ops
    Tensor places = flattened(zeros(full, dy.dtype(), dy.device()), dims);
    return scatter_add(places, -1, flattened(index, dims), flattened(dy, dims)).reshape(full);
  }
  DType wide = dy.dtype() == kFloat64 ? kFloat64 : kFloat32;  // overlapping windows add up
  Tensor g = like.channels_last ? to_channels_last(to_dtype(dy, wide)) : contiguous(to_dtype(dy, wide));
  Tensor dx = like.channels_last ? empty_strided(full, channels_last_strides(full), wide, dy.device())
                                 : empty(full, wide, dy.device());
  dx.zero_();
  if (dy.numel() > 0) {
    MaxPoolBackward k{g.data_ptr(),
                      static_cast<const int64_t*>(index.data_ptr()),
                      dx.data_ptr(),
                      wide,
                      like.extent,
                      like.extent,
                      {},
                      {}};
    for (int d = 0; d < 3; ++d) k.first[d] = viewers.first[d].data(), k.last[d] = viewers.last[d].data();
    for (int64_t i = 0; i < dims; ++i) {
      k.dx_extent.size[3 - dims + i] = in_sizes[i];
      k.dy_extent.size[3 - dims + i] = dy.shape()[dy.ndim() - dims + i];
    }
    auto kernel = max_pool_backward_kernel.find(dy.device(), k);
    SF_CHECK_AS(NotSupported, kernel, op, ": no backward kernel on ", dy.device());
    kernel(k);
  }
  return to_dtype(dx, dy.dtype());
}

Result run(const char* op, const Tensor& x, int64_t dims, const Ranges& r, bool want_index) {
  spatial::Layout l = spatial::layout_of(x, dims);
  bool taped = autograd::any_requires_grad({x});
  Tensor y = spatial::empty_result(l, r.out), index;
  if (want_index || taped) index = spatial::empty_result(l, r.out, kInt64);
  Shape in_sizes;
  for (int64_t i = 0; i < dims; ++i) in_sizes.push_back(x.shape()[x.ndim() - dims + i]);
  if (y.numel() > 0) {
    auto* places = index ? static_cast<int64_t*>(index.data_ptr()) : nullptr;
    MaxPool k{l.x.data_ptr(), y.data_ptr(), places, y.dtype(), l.extent, spatial::with_sizes(l, r.out), {}, {}, {}};
    for (int d = 0; d < 3; ++d) {
      k.start[d] = r.start[d].data();
      k.count[d] = r.count[d].data();
      k.dilation[d] = r.dilation[d];
    }
    auto kernel = max_pool_kernel.find(x.device(), k);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
    kernel(k);
  }
  if (taped) {
    l.x = {};  // only its geometry is needed
    y = autograd::record(
        op, y, {x},
        [op, at = autograd::save(index), l, viewers = Viewers(r, l.extent), in_sizes,
         dims](const Tensor& dy) -> Tensors { return {backward(op, dy, at.get(), l, viewers, in_sizes, dims)}; });
  }
  return {y, index};
}

Result max_pool(const char* op, const Tensor& x, int64_t dims, const pool::WindowArguments& a, bool want_index) {
  pool::Windows w = pool::windows(op, x, dims, a);
  Ranges r;
  r.out = w.out;
  for (int64_t d = 0; d < 3 - dims; ++d) r.start[d] = {0}, r.count[d] = {1};
  for (int64_t i = 0; i < dims; ++i) {
    int64_t d = 3 - dims + i, n = x.shape()[x.ndim() - dims + i], step = w.dilation[i];
    r.dilation[d] = step;
    for (int64_t o = 0; o < w.out[i]; ++o) {
      int64_t begin = o * w.stride[i] - w.padding[i], end = std::min(begin + (w.kernel[i] - 1) * step + 1, n);
      if (begin < 0) begin += (-begin + step - 1) / step * step;
      SF_CHECK(begin < end, op, ": a window of dimension ", x.ndim() - dims + i, " of ", x.shape(),
               " sees only padding (kernel_size ", a.kernel_size, ", padding ", a.padding, ", dilation ", a.dilation,
               ")");
      r.start[d].push_back(begin);
      r.count[d].push_back((end - begin + step - 1) / step);
    }
  }
  return run(op, x, dims, r, want_index);
}

Result adaptive_max_pool(const char* op, const Tensor& x, int64_t dims, const Shape& output_size, bool want_index) {
  Ranges r;
  r.out = pool::adaptive_sizes(op, x, dims, output_size);
  for (int64_t d = 0; d < 3 - dims; ++d) r.start[d] = {0}, r.count[d] = {1};
  for (int64_t i = 0; i < dims; ++i)
    for (int64_t o = 0; o < r.out[i]; ++o) {
      spatial::Window w = spatial::adaptive_window(o, x.shape()[x.ndim() - dims + i], r.out[i]);
      r.start[3 - dims + i].push_back(w.begin);
      r.count[3 - dims + i].push_back(w.end - w.begin);
    }
  return run(op, x, dims, r, want_index);
}

}  // namespace

Tensor max_pool1d(const Tensor& input, const Shape& kernel_size, const Shape& stride, const Shape& padding,
                  const Shape& dilation, bool ceil_mode) {
  return std::get<0>(max_pool("max_pool1d", input, 1, {kernel_size, stride, padding, dilation, ceil_mode}, false));
}
Result max_pool1d_with_indices(const Tensor& input, const Shape& kernel_size, const Shape& stride, const Shape& padding,
                               const Shape& dilation, bool ceil_mode) {
  return max_pool("max_pool1d", input, 1, {kernel_size, stride, padding, dilation, ceil_mode}, true);
}
Tensor adaptive_max_pool1d(const Tensor& input, const Shape& output_size) {
  return std::get<0>(adaptive_max_pool("adaptive_max_pool1d", input, 1, output_size, false));
}
Result adaptive_max_pool1d_with_indices(const Tensor& input, const Shape& output_size) {
  return adaptive_max_pool("adaptive_max_pool1d", input, 1, output_size, true);
}

Tensor max_pool2d(const Tensor& input, const Shape& kernel_size, const Shape& stride, const Shape& padding,
                  const Shape& dilation, bool ceil_mode) {
  return std::get<0>(max_pool("max_pool2d", input, 2, {kernel_size, stride, padding, dilation, ceil_mode}, false));
}
Result max_pool2d_with_indices(const Tensor& input, const Shape& kernel_size, const Shape& stride, const Shape& padding,
                               const Shape& dilation, bool ceil_mode) {
  return max_pool("max_pool2d", input, 2, {kernel_size, stride, padding, dilation, ceil_mode}, true);
}
Tensor adaptive_max_pool2d(const Tensor& input, const Shape& output_size) {
  return std::get<0>(adaptive_max_pool("adaptive_max_pool2d", input, 2, output_size, false));
}
Result adaptive_max_pool2d_with_indices(const Tensor& input, const Shape& output_size) {
  return adaptive_max_pool("adaptive_max_pool2d", input, 2, output_size, true);
}

Tensor max_pool3d(const Tensor& input, const Shape& kernel_size, const Shape& stride, const Shape& padding,
                  const Shape& dilation, bool ceil_mode) {
  SF_AUTOCAST(max_pool3d, input, kernel_size, stride, padding, dilation, ceil_mode);
  return std::get<0>(max_pool("max_pool3d", input, 3, {kernel_size, stride, padding, dilation, ceil_mode}, false));
}
Result max_pool3d_with_indices(const Tensor& input, const Shape& kernel_size, const Shape& stride, const Shape& padding,
                               const Shape& dilation, bool ceil_mode) {
  return max_pool("max_pool3d", input, 3, {kernel_size, stride, padding, dilation, ceil_mode}, true);
}
Tensor adaptive_max_pool3d(const Tensor& input, const Shape& output_size) {
  SF_AUTOCAST(adaptive_max_pool3d, input, output_size);
  return std::get<0>(adaptive_max_pool("adaptive_max_pool3d", input, 3, output_size, false));
}
Result adaptive_max_pool3d_with_indices(const Tensor& input, const Shape& output_size) {
  SF_AUTOCAST(adaptive_max_pool3d_with_indices, input, output_size);
  return adaptive_max_pool("adaptive_max_pool3d", input, 3, output_size, true);
}

SF_OP(max_pool1d, "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False")
    .doc("Maxima of windows of the last dimension.")
    .like("torch.nn.functional.max_pool1d")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(max_pool1d_with_indices, "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False")
    .doc("max_pool1d and the places of the maxima in the flattened spatial dimensions.")
    .like("torch.nn.functional.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(adaptive_max_pool1d, "input, output_size")
    .doc("Maxima of the windows that divide the last dimension into output_size parts.")
    .like("torch.nn.functional.adaptive_max_pool1d")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(adaptive_max_pool1d_with_indices, "input, output_size")
    .doc("adaptive_max_pool1d and the places of the maxima in the flattened spatial dimensions.")
    .like("torch.nn.functional.adaptive_max_pool1d(input, output_size, True)")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(max_pool2d, "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False")
    .doc("Maxima of windows of the last 2 dimensions.")
    .like("torch.nn.functional.max_pool2d")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(max_pool2d_with_indices, "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False")
    .doc("max_pool2d and the places of the maxima in the flattened spatial dimensions.")
    .like("torch.nn.functional.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(adaptive_max_pool2d, "input, output_size")
    .doc("Maxima of the windows that divide the last 2 dimensions into output_size parts.")
    .like("torch.nn.functional.adaptive_max_pool2d")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(adaptive_max_pool2d_with_indices, "input, output_size")
    .doc("adaptive_max_pool2d and the places of the maxima in the flattened spatial dimensions.")
    .like("torch.nn.functional.adaptive_max_pool2d(input, output_size, True)")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(max_pool3d, "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False")
    .doc("Maxima of windows of the last 3 dimensions.")
    .like("torch.nn.functional.max_pool3d")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(max_pool3d_with_indices, "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False")
    .doc("max_pool3d and the places of the maxima in the flattened spatial dimensions.")
    .like("torch.nn.functional.max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(adaptive_max_pool3d, "input, output_size")
    .doc("Maxima of the windows that divide the last 3 dimensions into output_size parts.")
    .like("torch.nn.functional.adaptive_max_pool3d")
    .kernels(max_pool_kernel, max_pool_backward_kernel);
SF_OP(adaptive_max_pool3d_with_indices, "input, output_size")
    .doc("adaptive_max_pool3d and the places of the maxima in the flattened spatial dimensions.")
    .like("torch.nn.functional.adaptive_max_pool3d(input, output_size, True)")
    .kernels(max_pool_kernel, max_pool_backward_kernel);

}  // namespace sf
