// Maximum pooling on CUDA: a thread per output. Its gradient: a thread per input, which asks the outputs that see it for their maximum's place, since
// windows overlap and nothing is added by atomics.
#include "scaffolding/backend/cuda/extent.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/pool/kernel.h"

namespace sf::cuda {
namespace {

struct Windows {
  const void* in;
  void* out;
  int64_t* index;
  spatial::Extent from, to;
  const int64_t *start[3], *count[3];
  int64_t dilation[3], total;
};
template <class T> __global__ void __launch_bounds__(kThreads) largest_of_windows(Windows w) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= w.total) return;
  Pixel p = pixel_of(w.to, i);
  const T* in = static_cast<const T*>(w.in);
  real_t<T> best = -real_t<T>(INFINITY);
  int64_t first[3], at = -1;
  for (int d = 0; d < 3; ++d) first[d] = w.start[d][p.at[d]];
  for (int64_t a = 0; a < w.count[0][p.at[0]]; ++a)
    for (int64_t b = 0; b < w.count[1][p.at[1]]; ++b)
      for (int64_t c = 0; c < w.count[2][p.at[2]]; ++c) {
        int64_t place[3] = {first[0] + a * w.dilation[0], first[1] + b * w.dilation[1], first[2] + c * w.dilation[2]};
        real_t<T> v = widen(in[index_in(w.from, p.outer, place[0], place[1], place[2], p.inner)]);
        if (v > best || v != v || at < 0) best = v, at = (place[0] * w.from.size[1] + place[1]) * w.from.size[2] + place[2];  // the last NaN, as torch
      }
  static_cast<T*>(w.out)[i] = in[(p.outer * w.from.size[0] * w.from.size[1] * w.from.size[2] + at) * w.from.inner + p.inner];
  if (w.index) w.index[i] = at;
}

void max_pool(const MaxPool& k) {
  Windows w{k.in, k.out, k.index, k.from, k.to, {}, {}, {}, elements_of(k.to)};
  DeviceTables tables(device_of(k.out, "max_pool"));
  for (int d = 0; d < 3; ++d) {
    w.start[d] = tables(k.start[d], k.to.size[d]), w.count[d] = tables(k.count[d], k.to.size[d]);
    w.dilation[d] = k.dilation[d];
  }
  as_float(k.dtype, [&](auto t) { launch("max_pool", tables.device, blocks_for(w.total, 1), largest_of_windows<decltype(t)>, w); });
}

struct Viewed {
  const void* dy;
  const int64_t* index;
  void* dx;
  spatial::Extent from, to;  // of dy, of dx
  const int64_t *first[3], *last[3];
  int64_t total;
};
template <class T> __global__ void __launch_bounds__(kThreads) gradients_of_viewers(Viewed v) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= v.total) return;
  Pixel p = pixel_of(v.to, i);
  int64_t place = (p.at[0] * v.to.size[1] + p.at[1]) * v.to.size[2] + p.at[2];
  T sum = 0;
  for (int64_t a = v.first[0][p.at[0]]; a < v.last[0][p.at[0]]; ++a)
    for (int64_t b = v.first[1][p.at[1]]; b < v.last[1][p.at[1]]; ++b)
      for (int64_t c = v.first[2][p.at[2]]; c < v.last[2][p.at[2]]; ++c) {
        int64_t o = index_in(v.from, p.outer, a, b, c, p.inner);
        if (v.index[o] == place) sum += static_cast<const T*>(v.dy)[o];
      }
  static_cast<T*>(v.dx)[i] = sum;
}

void max_pool_backward(const MaxPoolBackward& k) {
  Viewed v{k.dy, k.index, k.dx, k.dy_extent, k.dx_extent, {}, {}, elements_of(k.dx_extent)};
  DeviceTables tables(device_of(k.dx, "max_pool_backward"));
  for (int d = 0; d < 3; ++d) v.first[d] = tables(k.first[d], k.dx_extent.size[d]), v.last[d] = tables(k.last[d], k.dx_extent.size[d]);
  as_float(k.dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (sizeof(T) >= 4) launch("max_pool_backward", tables.device, blocks_for(v.total, 1), gradients_of_viewers<T>, v);
  });
}

bool supports(const MaxPool& k) { return is_floating(k.dtype) && !is_float8(k.dtype); }

SF_KERNEL(max_pool_kernel, DeviceType::CUDA, "native", 0, max_pool, supports)
SF_KERNEL(max_pool_backward_kernel, DeviceType::CUDA, "native", 0, max_pool_backward, nullptr)

}  // namespace
}  // namespace sf::cuda
