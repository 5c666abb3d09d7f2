#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/pool/pool.h"
#include "scaffolding/ops/pool/window.h"
#include "scaffolding/ops/random/random.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

// Where the windows of one dimension begin (torch's rule, in the tensor's precision).
template <class T> std::vector<int64_t> starts(T sample, int64_t in, int64_t out, int64_t kernel) {
  std::vector<int64_t> at(static_cast<size_t>(out));
  const T step = out > 1 ? T(in - kernel) / T(out - 1) : T(0);
  for (int64_t i = 0; i + 1 < out; ++i) at[size_t(i)] = int64_t((T(i) + sample) * step) - int64_t(sample * step);
  if (out > 0) at.back() = in - kernel;
  return at;
}

// The flat position of every element of every window: [N * C, outputs, elements of a window].
Tensor window_places(const Tensor& samples, int64_t dims, const Shape& in, const Shape& out, const Shape& kernel) {
  const Tensor drawn = contiguous(to_dtype(samples.detach().cpu(), kFloat64));
  const double* draw = drawn.data<double>();
  const bool wide = samples.dtype() == kFloat64;
  const int64_t planes = samples.numel() / dims, outputs = numel(out), elements = numel(kernel);
  Tensor places = empty({planes, outputs, elements}, kInt64);
  auto* to = places.data<int64_t>();
  for (int64_t plane = 0; plane < planes; ++plane) {
    std::vector<int64_t> at[3] = {{0}, {0}, {0}};
    int64_t size[3] = {1, 1, 1}, taps[3] = {1, 1, 1};
    for (int64_t d = 0; d < dims; ++d) {
      const double u = draw[plane * dims + (dims == 2 ? 1 - d : d)];  // of two dimensions the last is drawn first
      const size_t axis = size_t(3 - dims + d);
      at[axis] = wide ? starts<double>(u, in[d], out[d], kernel[d]) : starts<float>(float(u), in[d], out[d], kernel[d]);
      size[axis] = in[d];
      taps[axis] = kernel[d];
    }
    for (int64_t z : at[0])
      for (int64_t y : at[1])
        for (int64_t x : at[2])
          for (int64_t k = 0; k < taps[0]; ++k)
            for (int64_t j = 0; j < taps[1]; ++j)
              for (int64_t i = 0; i < taps[2]; ++i) *to++ = ((z + k) * size[1] + y + j) * size[2] + x + i;
  }
  return places;
}

std::tuple<Tensor, Tensor> fractional_max_pool(const char* op, const Tensor& x, int64_t dims, const Shape& kernel_size,
                                               const Shape& output_size, const std::optional<Floats>& output_ratio,
                                               const Tensor& random_samples) {
  pool::check_input(op, x, dims);
  const Shape kernel = pool::spread(op, "kernel_size", kernel_size, dims, 1);
  SF_CHECK(output_size.empty() == output_ratio.has_value(), op, ": needs one of output_size and output_ratio, got ",
           output_ratio ? "both" : "neither");
  Shape in, out;
  for (int64_t i = 0; i < dims; ++i) in.push_back(x.shape()[x.ndim() - dims + i]);
  if (output_ratio) {
    SF_CHECK(output_ratio->size() == 1 || int64_t(output_ratio->size()) == dims, op,
             ": output_ratio must have one entry or ", dims, ", got ", output_ratio->size());
    for (int64_t i = 0; i < dims; ++i) {
      const double ratio = (*output_ratio)[output_ratio->size() == 1 ? 0 : size_t(i)];
      SF_CHECK(ratio > 0 && ratio < 1, op, ": output_ratio must be between 0 and 1, got ", ratio);
      out.push_back(int64_t(double(in[i]) * ratio));
    }
  } else {
    out = pool::spread(op, "output_size", output_size, dims, 1);
  }
  for (int64_t i = 0; i < dims; ++i)
    SF_CHECK(out[i] > 0 && out[i] + kernel[i] - 1 < in[i], op, ": kernel_size ", kernel, " and output size ", out,
             " do not fit into input ", x.shape());
  const int64_t batch = x.ndim() == dims + 2 ? x.size(0) : 1, channels = x.size(-dims - 1);
  check_shape(op, "_random_samples", random_samples, {batch, channels, dims});
  Tensor samples = random_samples ? random_samples : rand({batch, channels, dims}, {}, x.dtype(), x.device());
  Shape sizes = x.shape();
  for (int64_t i = 0; i < dims; ++i) sizes[sizes.size() - dims + i] = out[i];
  const int64_t planes = batch * channels;
  Tensor flat = x.reshape({planes, numel(in)}), index;
  if (x.device().is_meta()) {
    index = empty({planes, numel(out)}, kInt64, x.device());
  } else {
    autograd::NoGrad off;
    if (x.device().is_cuda()) cuda::refuse_while_capturing(op, "placing windows by the values of _random_samples");
    Tensor places = window_places(samples, dims, in, out, kernel).to(x.device());
    Tensor values = gather(flat.unsqueeze(1).expand({planes, numel(out), numel(in)}), 2, places);
    index = gather(places, 2, argmax(values, -1, true)).squeeze(2);
  }
  return {gather(flat, 1, index).reshape(sizes), index.reshape(sizes)};
}

}  // namespace

std::tuple<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& input, const Shape& kernel_size,
                                                              const Shape& output_size,
                                                              const std::optional<Floats>& output_ratio,
                                                              const Tensor& random_samples) {
  return fractional_max_pool("fractional_max_pool2d_with_indices", input, 2, kernel_size, output_size, output_ratio,
                             random_samples);
}
std::tuple<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& input, const Shape& kernel_size,
                                                              const Shape& output_size,
                                                              const std::optional<Floats>& output_ratio,
                                                              const Tensor& random_samples) {
  return fractional_max_pool("fractional_max_pool3d_with_indices", input, 3, kernel_size, output_size, output_ratio,
                             random_samples);
}

SF_OP(fractional_max_pool2d_with_indices,
      "input, kernel_size, output_size=None, output_ratio=None, _random_samples=None")
    .doc(
        "Maxima of output_size windows of input[N, C, H, W] at drawn distances, or at those of _random_samples[N, C, "
        "2], and their places.")
    .like(
        "torch.nn.functional.fractional_max_pool2d_with_indices(input, kernel_size * (2 // len(kernel_size)), "
        "output_size or None, "
        "output_ratio, _random_samples=_random_samples.detach())");
SF_OP(fractional_max_pool3d_with_indices,
      "input, kernel_size, output_size=None, output_ratio=None, _random_samples=None")
    .doc(
        "Maxima of output_size windows of input[N, C, D, H, W] at drawn distances, or at those of _random_samples[N, "
        "C, 3], and their places.")
    .like(
        "torch.nn.functional.fractional_max_pool3d_with_indices(input, kernel_size * (3 // len(kernel_size)), "
        "output_size or None, "
        "output_ratio, _random_samples=_random_samples.detach())");

}  // namespace sf
