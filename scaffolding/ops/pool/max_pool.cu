// Maximum pooling on CUDA: a thread per output. Its gradient: a thread per input, which asks the outputs that see it
// for their maximum's place, since windows overlap and nothing is added by atomics.
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/pool/kernel.h"
#include "scaffolding/ops/spatial/extent.cuh"

namespace sf::cuda {
namespace {

struct Windows {
  const void* in;
  void* out;
  int64_t* index;
  spatial::Extent from;
  const int64_t *start[3], *count[3];
  int64_t dilation[3];
};
// Place counts the pixels of a picture: 32 bits where they suffice, since eight of them are kept.
template <class T, int V, class Place>
__global__ void __launch_bounds__(kThreads) largest_of_windows(Windows w, Images to) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= to.total) return;
  Images::Place p = to.place(i);
  int64_t first[3], count[3];
  for (int d = 0; d < 3; ++d) first[d] = w.start[d][p.at[d]], count[d] = w.count[d][p.at[d]];
  const Vec<T, V>* in = static_cast<const Vec<T, V>*>(w.in) + pixel_in(w.from, p.outer, 0, 0, 0) * to.units.d + p.unit;
  Vec<T, V> best{};
  Place at[V] = {};
  bool none = true;
  for (int64_t a = 0; a < count[0]; ++a)
    for (int64_t b = 0; b < count[1]; ++b)
      for (int64_t c = 0; c < count[2]; ++c) {
        int64_t pixel = pixel_in(w.from, 0, first[0] + a * w.dilation[0], first[1] + b * w.dilation[1],
                                 first[2] + c * w.dilation[2]);
        Vec<T, V> x = in[pixel * to.units.d];
#pragma unroll
        for (int v = 0; v < V; ++v) {
          auto value = widen(x.v[v]);
          // the last NaN, as torch
          if (none || value > widen(best.v[v]) || value != value) best.v[v] = x.v[v], at[v] = Place(pixel);
        }
        none = false;
      }
  static_cast<Vec<T, V>*>(w.out)[to.first + i] = best;
  if (!w.index) return;
  Vec<int64_t, V> index;
#pragma unroll
  for (int v = 0; v < V; ++v) index.v[v] = at[v];
  int64_t* to_index = w.index + (to.first + i) * V;
  for (int v = 0; v < V; v += 2) {
    if constexpr (V > 1) *reinterpret_cast<Vec<int64_t, 2>*>(to_index + v) = {index.v[v], index.v[v + 1]};
    else *to_index = index.v[0];
  }
}

void max_pool(const MaxPool& k) {
  Windows w{k.in, k.out, k.index, k.from, {}, {}, {}};
  DeviceTables tables(device_of(k.out, "max_pool"));
  for (int d = 0; d < 3; ++d) {
    w.start[d] = tables(k.start[d], k.to.size[d]), w.count[d] = tables(k.count[d], k.to.size[d]);
    w.dilation[d] = k.dilation[d];
  }
  int64_t pixels = k.from.size[0] * k.from.size[1] * k.from.size[2];
  as_float(k.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int V = 16 / int(sizeof(T));
    if (unit_of(k.to.inner * int64_t(sizeof(T)), k.in, k.out, k.index) == 16 && pixels <= INT32_MAX) {
      for_images(k.to, k.to.inner / V, [&](const Images& to) {
        launch("max_pool", tables.device, blocks_for(to.total, 1), largest_of_windows<T, V, uint32_t>, w, to);
      });
    } else {
      for_images(k.to, k.to.inner, [&](const Images& to) {
        launch("max_pool", tables.device, blocks_for(to.total, 1), largest_of_windows<T, 1, int64_t>, w, to);
      });
    }
  });
}

struct Viewed {
  const void* dy;
  const int64_t* index;
  void* dx;
  spatial::Extent from, to;  // of dy, of dx
  const int64_t *first[3], *last[3];
};
template <class T> __global__ void __launch_bounds__(kThreads) gradients_of_viewers(Viewed v, Images to) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= to.total) return;
  Images::Place p = to.place(i);
  int64_t place = pixel_in(v.to, 0, p.at[0], p.at[1], p.at[2]), first[3], last[3];
  for (int d = 0; d < 3; ++d) first[d] = v.first[d][p.at[d]], last[d] = v.last[d][p.at[d]];
  T sum = 0;
  for (int64_t a = first[0]; a < last[0]; ++a)
    for (int64_t b = first[1]; b < last[1]; ++b) {
      int64_t o = pixel_in(v.from, p.outer, a, b, first[2]) * to.units.d + p.unit;
      for (int64_t c = first[2]; c < last[2]; ++c, o += to.units.d)
        if (v.index[o] == place) sum += static_cast<const T*>(v.dy)[o];
    }
  static_cast<T*>(v.dx)[to.first + i] = sum;
}

void max_pool_backward(const MaxPoolBackward& k) {
  Viewed v{k.dy, k.index, k.dx, k.dy_extent, k.dx_extent, {}, {}};
  DeviceTables tables(device_of(k.dx, "max_pool_backward"));
  for (int d = 0; d < 3; ++d)
    v.first[d] = tables(k.first[d], k.dx_extent.size[d]), v.last[d] = tables(k.last[d], k.dx_extent.size[d]);
  as_float(k.dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (sizeof(T) >= 4)
      for_images(k.dx_extent, k.dx_extent.inner, [&](const Images& to) {
        launch("max_pool_backward", tables.device, blocks_for(to.total, 1), gradients_of_viewers<T>, v, to);
      });
  });
}

bool supports(const MaxPool& k) { return is_floating(k.dtype) && !is_float8(k.dtype); }

SF_KERNEL(max_pool_kernel, DeviceType::CUDA, "native", 0, max_pool, supports)
SF_KERNEL(max_pool_backward_kernel, DeviceType::CUDA, "native", 0, max_pool_backward, nullptr)

}  // namespace
}  // namespace sf::cuda
