// Padding by maps, nearest neighbours, and separable filters (interpolation, averages) on CUDA: each thread gathers
// what one element of the result is made of, in gradients too, so that nothing is added by atomics.
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/spatial/extent.cuh"

namespace sf::cuda {
namespace {

struct Moved {
  const void* in;
  void* out;
  spatial::Extent from;
  const int64_t* map[3];
};
template <class U> __global__ void __launch_bounds__(kThreads) remap_units(Moved m, Images to, PreviousGrid previous) {
  constexpr int kUnits = 2;  // of a thread, both on their way at once
  uint32_t first = blockIdx.x * uint32_t(kThreads * kUnits) + threadIdx.x;
  previous.wait();
  U x[kUnits];
#pragma unroll
  for (int j = 0; j < kUnits; ++j) {
    if (first + j * kThreads >= to.total) break;
    Images::Place p = to.place(first + j * kThreads);
    int64_t pixel = pixel_in(m.from, p.outer, m.map[0][p.at[0]], m.map[1][p.at[1]], m.map[2][p.at[2]]);
    x[j] = static_cast<const U*>(m.in)[pixel * to.units.d + p.unit];
  }
#pragma unroll
  for (int j = 0; j < kUnits; ++j)
    if (first + j * kThreads < to.total) static_cast<U*>(m.out)[to.first + first + j * kThreads] = x[j];
}

struct alignas(16) Sixteen {
  uint64_t v[2];
};

void remap(const Remap& k) {
  Moved m{k.in, k.out, k.from, {}};
  DeviceTables tables(device_of(k.out, "remap"));
  for (int d = 0; d < 3; ++d) m.map[d] = tables(k.map[d], k.to.size[d]);
  int64_t bytes = k.to.inner * int64_t(size_of(k.dtype)), unit = unit_of(bytes, k.in, k.out);
  for_images(k.to, bytes / unit, [&](const Images& to) {
    unsigned blocks = blocks_for(to.total, 2);
    switch (unit) {
      case 16: return launch("remap", tables.device, blocks, remap_units<Sixteen>, m, to);
      case 8: return launch("remap", tables.device, blocks, remap_units<uint64_t>, m, to);
      case 4: return launch("remap", tables.device, blocks, remap_units<uint32_t>, m, to);
      case 2: return launch("remap", tables.device, blocks, remap_units<uint16_t>, m, to);
      default: return launch("remap", tables.device, blocks, remap_units<uint8_t>, m, to);
    }
  });
}

// Calls f(std::integral_constant<int, V>) with the elements along inner that a thread takes: 16 bytes, or one.
template <class T, class F, class... P> void by_vectors(int64_t inner, const F& f, const P*... at) {
  constexpr int V = 16 / int(sizeof(T));
  if (unit_of(inner * int64_t(sizeof(T)), at...) == 16) f(std::integral_constant<int, V>());
  else f(std::integral_constant<int, 1>());
}

struct Gathered {
  const void* dy;
  void* dx;
  spatial::Extent from;
  const int64_t *start[3], *list[3];
};
template <class T, int V>
__global__ void __launch_bounds__(kThreads) remap_gradients(Gathered g, Images to, PreviousGrid previous) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  previous.wait();
  if (i >= to.total) return;
  Images::Place p = to.place(i);
  real_t<T> sum[V] = {};
  int64_t first[3], last[3];
  for (int d = 0; d < 3; ++d) first[d] = g.start[d][p.at[d]], last[d] = g.start[d][p.at[d] + 1];
  for (int64_t a = first[0]; a < last[0]; ++a)
    for (int64_t b = first[1]; b < last[1]; ++b) {
      const Vec<T, V>* row = static_cast<const Vec<T, V>*>(g.dy) +
                             pixel_in(g.from, p.outer, g.list[0][a], g.list[1][b], 0) * to.units.d + p.unit;
      for (int64_t c = first[2]; c < last[2]; ++c) {
        Vec<T, V> x = row[g.list[2][c] * to.units.d];
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] += widen(x.v[v]);
      }
    }
  Vec<T, V> y;
#pragma unroll
  for (int v = 0; v < V; ++v) y.v[v] = to_storage<T>(sum[v]);
  static_cast<Vec<T, V>*>(g.dx)[to.first + i] = y;
}

void remap_backward(const RemapBackward& k) {
  Gathered g{k.dy, k.dx, k.dy_extent, {}, {}};
  DeviceTables tables(device_of(k.dx, "remap_backward"));
  for (int d = 0; d < 3; ++d) {
    g.start[d] = tables(k.start[d], k.dx_extent.size[d] + 1);
    g.list[d] = tables(k.list[d], k.dy_extent.size[d]);
  }
  as_float(k.dtype, [&](auto t) {
    using T = decltype(t);
    by_vectors<T>(
        k.dx_extent.inner,
        [&](auto lanes) {
          constexpr int V = decltype(lanes)::value;
          for_images(k.dx_extent, k.dx_extent.inner / V, [&](const Images& to) {
            launch("remap_backward", tables.device, blocks_for(to.total, 1), remap_gradients<T, V>, g, to);
          });
        },
        k.dy, k.dx);
  });
}

template <class A> struct Filter {
  const void* in;
  void* out;
  spatial::Extent from;
  const int32_t *start[3], *count[3];
  const A* weight[3];
  int64_t width[3];
};
template <class T, int V>
__global__ void __launch_bounds__(kThreads) filter_elements(Filter<real_t<T>> f, Images to, PreviousGrid previous) {
  using A = real_t<T>;
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  previous.wait();
  if (i >= to.total) return;
  Images::Place p = to.place(i);
  int start[3], count[3];
  const A* weight[3];
  for (int d = 0; d < 3; ++d)
    start[d] = f.start[d][p.at[d]], count[d] = f.count[d][p.at[d]], weight[d] = f.weight[d] + p.at[d] * f.width[d];
  A sum[V] = {};
  for (int a = 0; a < count[0]; ++a) {
    A plane[V] = {};
    for (int b = 0; b < count[1]; ++b) {
      const Vec<T, V>* in = static_cast<const Vec<T, V>*>(f.in) +
                            pixel_in(f.from, p.outer, start[0] + a, start[1] + b, start[2]) * to.units.d + p.unit;
      A row[V] = {};
      for (int c = 0; c < count[2]; ++c, in += to.units.d) {
        Vec<T, V> x = *in;
        A w = weight[2][c];
#pragma unroll
        for (int v = 0; v < V; ++v) row[v] += w * widen(x.v[v]);
      }
      A w = weight[1][b];
#pragma unroll
      for (int v = 0; v < V; ++v) plane[v] += w * row[v];
    }
    A w = weight[0][a];
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += w * plane[v];
  }
  Vec<T, V> y;
#pragma unroll
  for (int v = 0; v < V; ++v) y.v[v] = to_storage<T>(sum[v]);
  static_cast<Vec<T, V>*>(f.out)[to.first + i] = y;
}

void resample(const Resample& k) {
  DeviceTables tables(device_of(k.out, "resample"));
  as_float(k.dtype, [&](auto t) {
    using T = decltype(t);
    using A = real_t<T>;
    Filter<A> f{k.in, k.out, k.from, {}, {}, {}, {}};
    for (int d = 0; d < 3; ++d) {
      int64_t n = k.to.size[d];
      f.start[d] = tables(k.taps[d].start, n), f.count[d] = tables(k.taps[d].count, n);
      f.width[d] = k.taps[d].width;
      if constexpr (std::is_same_v<A, double>) f.weight[d] = tables(k.taps[d].weight, n * f.width[d]);
      else f.weight[d] = tables(k.taps[d].weight32, n * f.width[d]);
    }
    by_vectors<T>(
        k.to.inner,
        [&](auto lanes) {
          constexpr int V = decltype(lanes)::value;
          for_images(k.to, k.to.inner / V, [&](const Images& to) {
            launch("resample", tables.device, blocks_for(to.total, 1), filter_elements<T, V>, f, to);
          });
        },
        k.in, k.out);
  });
}

bool reals(DType t) { return is_floating(t) && !is_float8(t); }

SF_KERNEL(remap_kernel, DeviceType::CUDA, "native", 0, remap, nullptr)
SF_KERNEL(remap_backward_kernel, DeviceType::CUDA, "native", 0, remap_backward,
          [](const RemapBackward& k) { return reals(k.dtype); })
SF_KERNEL(resample_kernel, DeviceType::CUDA, "native", 0, resample, [](const Resample& k) { return reals(k.dtype); })

}  // namespace
}  // namespace sf::cuda
