// Padding by maps, nearest neighbours, and separable filters (interpolation, averages) on CUDA: each thread gathers what one element of the
// result is made of, in gradients too, so that nothing is added by atomics.
#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/extent.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"

namespace sf::cuda {
namespace {

struct Moved {
  const void* in;
  void* out;
  int bytes;
  spatial::Extent from, to;
  const int64_t* map[3];
  int64_t total;
};
__global__ void __launch_bounds__(kThreads) remap_elements(Moved m) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= m.total) return;
  Pixel p = pixel_of(m.to, i);
  move_element(m.out, i, m.in, index_in(m.from, p.outer, m.map[0][p.at[0]], m.map[1][p.at[1]], m.map[2][p.at[2]], p.inner), m.bytes);
}

void remap(const Remap& k) {
  Moved m{k.in, k.out, int(size_of(k.dtype)), k.from, k.to, {}, elements_of(k.to)};
  DeviceTables tables(device_of(k.out, "remap"));
  for (int d = 0; d < 3; ++d) m.map[d] = tables(k.map[d], k.to.size[d]);
  launch("remap", tables.device, blocks_for(m.total, 1), remap_elements, m);
}

struct Gathered {
  const void* dy;
  void* dx;
  spatial::Extent dx_extent, dy_extent;
  const int64_t *start[3], *list[3];
  int64_t total;
};
template <class T> __global__ void __launch_bounds__(kThreads) remap_gradients(Gathered g) {
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= g.total) return;
  Pixel p = pixel_of(g.dx_extent, i);
  real_t<T> sum = 0;
  for (int64_t a = g.start[0][p.at[0]]; a < g.start[0][p.at[0] + 1]; ++a)
    for (int64_t b = g.start[1][p.at[1]]; b < g.start[1][p.at[1] + 1]; ++b)
      for (int64_t c = g.start[2][p.at[2]]; c < g.start[2][p.at[2] + 1]; ++c)
        sum += widen(static_cast<const T*>(g.dy)[index_in(g.dy_extent, p.outer, g.list[0][a], g.list[1][b], g.list[2][c], p.inner)]);
  static_cast<T*>(g.dx)[i] = to_storage<T>(sum);
}

void remap_backward(const RemapBackward& k) {
  Gathered g{k.dy, k.dx, k.dx_extent, k.dy_extent, {}, {}, elements_of(k.dx_extent)};
  DeviceTables tables(device_of(k.dx, "remap_backward"));
  for (int d = 0; d < 3; ++d) {
    g.start[d] = tables(k.start[d], k.dx_extent.size[d] + 1);
    g.list[d] = tables(k.list[d], k.dy_extent.size[d]);
  }
  as_float(k.dtype, [&](auto t) { launch("remap_backward", tables.device, blocks_for(g.total, 1), remap_gradients<decltype(t)>, g); });
}

template <class A> struct Filter {
  const void* in;
  void* out;
  spatial::Extent from, to;
  const int32_t *start[3], *count[3];
  const A* weight[3];
  int64_t width[3], total;
};
template <class T> __global__ void __launch_bounds__(kThreads) filter_elements(Filter<real_t<T>> f) {
  using A = real_t<T>;
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= f.total) return;
  Pixel p = pixel_of(f.to, i);
  const T* in = static_cast<const T*>(f.in);
  A sum = 0;
  for (int a = 0; a < f.count[0][p.at[0]]; ++a) {
    A plane = 0;
    for (int b = 0; b < f.count[1][p.at[1]]; ++b) {
      A row = 0;
      for (int c = 0; c < f.count[2][p.at[2]]; ++c)
        row += f.weight[2][p.at[2] * f.width[2] + c] *
               widen(in[index_in(f.from, p.outer, f.start[0][p.at[0]] + a, f.start[1][p.at[1]] + b, f.start[2][p.at[2]] + c, p.inner)]);
      plane += f.weight[1][p.at[1] * f.width[1] + b] * row;
    }
    sum += f.weight[0][p.at[0] * f.width[0] + a] * plane;
  }
  static_cast<T*>(f.out)[i] = to_storage<T>(sum);
}

void resample(const Resample& k) {
  DeviceTables tables(device_of(k.out, "resample"));
  as_float(k.dtype, [&](auto t) {
    using T = decltype(t);
    using A = real_t<T>;
    Filter<A> f{k.in, k.out, k.from, k.to, {}, {}, {}, {}, elements_of(k.to)};
    for (int d = 0; d < 3; ++d) {
      int64_t n = k.to.size[d];
      f.start[d] = tables(k.taps[d].start, n), f.count[d] = tables(k.taps[d].count, n);
      f.width[d] = k.taps[d].width;
      if constexpr (std::is_same_v<A, double>) f.weight[d] = tables(k.taps[d].weight, n * f.width[d]);
      else f.weight[d] = tables(k.taps[d].weight32, n * f.width[d]);
    }
    launch("resample", tables.device, blocks_for(f.total, 1), filter_elements<T>, f);
  });
}

bool reals(DType t) { return is_floating(t) && !is_float8(t); }

SF_KERNEL(remap_kernel, DeviceType::CUDA, "native", 0, remap, nullptr)
SF_KERNEL(remap_backward_kernel, DeviceType::CUDA, "native", 0, remap_backward, [](const RemapBackward& k) { return reals(k.dtype); })
SF_KERNEL(resample_kernel, DeviceType::CUDA, "native", 0, resample, [](const Resample& k) { return reals(k.dtype); })

}  // namespace
}  // namespace sf::cuda
