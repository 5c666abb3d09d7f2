// unfold and fold on CUDA: a thread per element of the result, which gathers; sums of fold are in a fixed order.
#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/extent.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/ops/unfold/kernel.h"

namespace sf::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) unfold_elements(Unfold u, int64_t total, int bytes) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  int64_t rest = i, x = rest % u.out[1];
  rest /= u.out[1];
  int64_t y = rest % u.out[0];
  rest /= u.out[0];
  int64_t kx = rest % u.kernel[1];
  rest /= u.kernel[1];
  int64_t ky = rest % u.kernel[0], plane = rest / u.kernel[0];
  int64_t row = y * u.stride[0] - u.padding[0] + ky * u.dilation[0], col = x * u.stride[1] - u.padding[1] + kx * u.dilation[1];
  bool inside = row >= 0 && row < u.size[0] && col >= 0 && col < u.size[1];
  if (inside) return move_element(u.columns, i, u.image, (plane * u.size[0] + row) * u.size[1] + col, bytes);
  for (int b = 0; b < bytes; ++b) static_cast<char*>(u.columns)[i * bytes + b] = 0;
}

template <class T> __global__ void __launch_bounds__(kThreads) fold_elements(Unfold u, int64_t total) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  int64_t col = i % u.size[1], row = i / u.size[1] % u.size[0], plane = i / (u.size[0] * u.size[1]);
  T sum = 0;
  for (int64_t ky = 0; ky < u.kernel[0]; ++ky) {
    int64_t y = row + u.padding[0] - ky * u.dilation[0];
    if (y < 0 || y % u.stride[0] != 0 || y / u.stride[0] >= u.out[0]) continue;
    for (int64_t kx = 0; kx < u.kernel[1]; ++kx) {
      int64_t x = col + u.padding[1] - kx * u.dilation[1];
      if (x < 0 || x % u.stride[1] != 0 || x / u.stride[1] >= u.out[1]) continue;
      sum += static_cast<const T*>(u.columns)[(((plane * u.kernel[0] + ky) * u.kernel[1] + kx) * u.out[0] + y / u.stride[0]) * u.out[1] + x / u.stride[1]];
    }
  }
  static_cast<T*>(u.image)[i] = sum;
}

void unfold(const Unfold& u) {
  int64_t total = u.planes * u.kernel[0] * u.kernel[1] * u.out[0] * u.out[1];
  if (total > 0) launch("unfold", device_of(u.columns, "unfold"), blocks_for(total, 1), unfold_elements, u, total, int(size_of(u.dtype)));
}
void fold(const Unfold& u) {
  int64_t total = u.planes * u.size[0] * u.size[1];
  if (total == 0) return;
  Device device = device_of(u.image, "fold");
  if (u.dtype == kFloat64) launch("fold", device, blocks_for(total, 1), fold_elements<double>, u, total);
  else launch("fold", device, blocks_for(total, 1), fold_elements<float>, u, total);
}

SF_KERNEL(unfold_kernel, DeviceType::CUDA, "native", 0, unfold, nullptr)
SF_KERNEL(fold_kernel, DeviceType::CUDA, "native", 0, fold, nullptr)

}  // namespace
}  // namespace sf::cuda
