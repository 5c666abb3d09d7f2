// Numbers at equal distances, made where they are used: a table copied from the host could not be part of a captured
// graph.
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/ops/factory/kernel.h"

namespace sf::cuda {
namespace {

// Rounded after the product and after the sum, as on the host.
__device__ double number(const RangeFill& r, int64_t i) {
  bool from_end = r.from_end > 0 && i >= r.from_end;
  double steps = from_end ? double(r.count - 1 - i) : double(i);
  return from_end ? __dadd_rn(r.last, -__dmul_rn(r.step, steps)) : __dadd_rn(r.start, __dmul_rn(r.step, steps));
}

__global__ void range(RangeFill r) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= r.count) return;
  if (r.reals) r.reals[i] = number(r, i);
  else r.integers[i] = r.whole ? r.first + i * r.stride : int64_t(number(r, i));
}

void fill_range(const RangeFill& r) { launch("arange", r.device, blocks_for(r.count, 1), range, r); }
SF_KERNEL(range_fill, DeviceType::CUDA, "native", 0, fill_range, nullptr)

}  // namespace
}  // namespace sf::cuda
