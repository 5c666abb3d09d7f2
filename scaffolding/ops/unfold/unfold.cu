// unfold and fold on CUDA: a thread per element of the result, which gathers; sums of fold are in a fixed order.
#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/ops/spatial/extent.cuh"
#include "scaffolding/ops/unfold/kernel.h"

namespace sf::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) unfold_elements(Unfold u, Images columns, Divider kernel_x, int bytes) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= columns.total) return;
  Images::Place p = columns.place(i);
  uint32_t ky = kernel_x.quotient(p.at[0]), kx = p.at[0] - ky * kernel_x.d;
  int64_t row = p.at[1] * u.stride[0] - u.padding[0] + ky * u.dilation[0],
          col = p.at[2] * u.stride[1] - u.padding[1] + kx * u.dilation[1], to = columns.first + i;
  bool inside = row >= 0 && row < u.size[0] && col >= 0 && col < u.size[1];
  if (inside) return move_element(u.columns, to, u.image, (p.outer * u.size[0] + row) * u.size[1] + col, bytes);
  for (int b = 0; b < bytes; ++b) static_cast<char*>(u.columns)[to * bytes + b] = 0;
}

template <class T>
__global__ void __launch_bounds__(kThreads) fold_elements(Unfold u, Images image, Divider stride_y, Divider stride_x) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= image.total) return;
  Images::Place p = image.place(i);
  // The output whose tap shows a place, or -1.
  auto output = [](int64_t at, const Divider& stride, int64_t count) {
    if (at < 0) return int64_t(-1);
    uint32_t q = stride.quotient(uint32_t(at));
    return q * stride.d == uint32_t(at) && q < count ? int64_t(q) : int64_t(-1);
  };
  T sum = 0;
  for (int64_t ky = 0; ky < u.kernel[0]; ++ky) {
    int64_t y = output(p.at[1] + u.padding[0] - ky * u.dilation[0], stride_y, u.out[0]);
    if (y < 0) continue;
    const T* row =
        static_cast<const T*>(u.columns) + ((p.outer * u.kernel[0] + ky) * u.kernel[1] * u.out[0] + y) * u.out[1];
    for (int64_t kx = 0; kx < u.kernel[1]; ++kx, row += u.out[0] * u.out[1]) {
      int64_t x = output(p.at[2] + u.padding[1] - kx * u.dilation[1], stride_x, u.out[1]);
      if (x >= 0) sum += row[x];
    }
  }
  static_cast<T*>(u.image)[image.first + i] = sum;
}

void unfold(const Unfold& u) {
  if (u.planes * u.kernel[0] * u.kernel[1] * u.out[0] * u.out[1] == 0) return;
  spatial::Extent columns{u.planes, {u.kernel[0] * u.kernel[1], u.out[0], u.out[1]}, 1};
  Device device = device_of(u.columns, "unfold");
  for_images(columns, 1, [&](const Images& part) {
    launch("unfold", device, blocks_for(part.total, 1), unfold_elements, u, part, Divider(uint32_t(u.kernel[1])),
           int(size_of(u.dtype)));
  });
}
void fold(const Unfold& u) {
  spatial::Extent image{u.planes, {1, u.size[0], u.size[1]}, 1};
  Device device = device_of(u.image, "fold");
  Divider y(uint32_t(u.stride[0])), x(uint32_t(u.stride[1]));
  for_images(image, 1, [&](const Images& part) {
    unsigned blocks = blocks_for(part.total, 1);
    if (u.dtype == kFloat64) launch("fold", device, blocks, fold_elements<double>, u, part, y, x);
    else launch("fold", device, blocks, fold_elements<float>, u, part, y, x);
  });
}
bool is_usual(const Unfold& u) {
  for (int d = 0; d < 2; ++d)
    if (u.size[d] + 2 * u.padding[d] > INT32_MAX || u.stride[d] > INT32_MAX) return false;
  return true;
}

SF_KERNEL(unfold_kernel, DeviceType::CUDA, "native", 0, unfold, is_usual)
SF_KERNEL(fold_kernel, DeviceType::CUDA, "native", 0, fold, is_usual)

}  // namespace
}  // namespace sf::cuda
