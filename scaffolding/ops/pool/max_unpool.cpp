#include "scaffolding/core/op.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/pool/pool.h"
#include "scaffolding/ops/pool/window.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

struct UnpoolArguments {
  const Shape &kernel_size, &stride, &padding, &output_size;
};

Tensor max_unpool(const char* op, const Tensor& x, const Tensor& indices, int64_t dims, const UnpoolArguments& a) {
  pool::check_input(op, x, dims);
  check_defined(op, "indices", indices);
  check_same_device(op, x, indices);
  SF_CHECK_AS(TypeError, indices.dtype() == kInt64, op, ": indices must be int64, got ", indices.dtype());
  SF_CHECK(indices.shape() == x.shape(), op, ": indices must have input's shape ", x.shape(), ", got ",
           indices.shape());
  const Shape kernel = pool::spread(op, "kernel_size", a.kernel_size, dims, 1),
              stride = a.stride.empty() ? kernel : pool::spread(op, "stride", a.stride, dims, 1),
              padding = pool::spread(op, "padding", a.padding, dims, 0);
  const int64_t given = a.output_size.size();
  SF_CHECK(given == 0 || given == dims || given == dims + 2, op, ": output_size must have ", dims, " entries or ",
           dims + 2, ", got ", a.output_size);
  Shape out = x.shape();
  int64_t places = 1;
  for (int64_t i = 0; i < dims; ++i) {
    int64_t& n = out[out.size() - dims + i];
    n = (n - 1) * stride[i] + kernel[i] - 2 * padding[i];
    if (given > 0) {
      const int64_t wanted = a.output_size[given - dims + i];
      SF_CHECK(n - stride[i] < wanted && wanted < n + stride[i], op, ": output_size must be between ", n - stride[i],
               " and ", n + stride[i], " in dimension ", i, ", got ", wanted);
      n = wanted;
    }
    SF_CHECK(n > 0, op, ": the output would have no place in dimension ", i, " for input ", x.shape());
    places *= n;
  }
  Shape flat = x.shape();
  for (int64_t i = 1; i < dims; ++i) flat.erase(flat.size() - 1);
  flat.back() = places;
  const int64_t first = x.ndim() - dims;
  return scatter(zeros(flat, x.dtype(), x.device()), -1, indices.flatten(first, -1), x.flatten(first, -1)).reshape(out);
}

}  // namespace

Tensor max_unpool1d(const Tensor& input, const Tensor& indices, const Shape& kernel_size, const Shape& stride,
                    const Shape& padding, const Shape& output_size) {
  return max_unpool("max_unpool1d", input, indices, 1, {kernel_size, stride, padding, output_size});
}
Tensor max_unpool2d(const Tensor& input, const Tensor& indices, const Shape& kernel_size, const Shape& stride,
                    const Shape& padding, const Shape& output_size) {
  return max_unpool("max_unpool2d", input, indices, 2, {kernel_size, stride, padding, output_size});
}
Tensor max_unpool3d(const Tensor& input, const Tensor& indices, const Shape& kernel_size, const Shape& stride,
                    const Shape& padding, const Shape& output_size) {
  return max_unpool("max_unpool3d", input, indices, 3, {kernel_size, stride, padding, output_size});
}

SF_OP(max_unpool1d, "input, indices, kernel_size, stride=None, padding=0, output_size=None")
    .doc("input[N, C, L] put where max_pool1d_with_indices found it, zeros elsewhere.")
    .like(
        "torch.nn.functional.max_unpool1d(input, indices, kernel_size, stride or None, padding, output_size or "
        "None)");
SF_OP(max_unpool2d, "input, indices, kernel_size, stride=None, padding=0, output_size=None")
    .doc("input[N, C, H, W] put where max_pool2d_with_indices found it, zeros elsewhere.")
    .like(
        "(lambda wide: torch.nn.functional.max_unpool2d(input, indices, wide(kernel_size), stride and wide(stride), "
        "wide(padding), output_size or None))(lambda sizes: sizes * (2 // len(sizes)))");
SF_OP(max_unpool3d, "input, indices, kernel_size, stride=None, padding=0, output_size=None")
    .doc("input[N, C, D, H, W] put where max_pool3d_with_indices found it, zeros elsewhere.")
    .like(
        "(lambda wide: torch.nn.functional.max_unpool3d(input, indices, wide(kernel_size), stride and wide(stride), "
        "wide(padding), output_size or None))(lambda sizes: sizes * (3 // len(sizes)))");

}  // namespace sf
