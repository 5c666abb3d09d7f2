// The gradients of group_norm (+ SiLU) on CUDA. Sums over each channel's elements, the groups' means from them,
// one pass that writes dx. NHWC: where a cluster of blocks has room for groups, one launch does all of that
// (kept_gradients.cuh), or a block where the cache of its multiprocessor has room for one. No atomics.
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/group_norm/kept_gradients.cuh"

namespace sf::cuda {
namespace {

constexpr int kGroupThreads = 512;          // of a block that has a group
constexpr int64_t kCachedGroup = 64 << 10;  // bytes of x in such a group; as many of dy come with them

// dx = scale dz - base - (x - mean) slope; z = (x - mean) scale + offset.
template <class A> struct Terms {
  A mean, scale, offset, base, slope;
  __device__ Terms of_channel(A weight, A bias) const { return {mean, scale * weight, bias, base, slope}; }
};
template <class A> struct TermArrays {  // [N, C] each
  A *mean, *scale, *offset, *base, *slope;
};

// Those of a channel without weight and bias. sums: of the group, of weight * dz and weight * dz * hat.
template <class T>
__device__ inline Terms<real_t<T>> terms_of(const Channels<T>& c, int64_t group, const real_t<T> (&sums)[2]) {
  using A = real_t<T>;
  const A mean = c.mean[group], rstd = c.rstd[group], count = A(c.group_size());
  return {mean, rstd, A(0), rstd * (sums[0] / count), rstd * (rstd * (sums[1] / count))};
}

// use(x, dy, index) for the vectors at x and dy, pairs of which are read before the first is used.
template <class T, int V, class I, class F>
__device__ inline void for_pairs(const T* x, const T* dy, int64_t stride, I first, std::type_identity_t<I> end,
                                 std::type_identity_t<I> step, const F& use) {
  I i = first;
  for (; i + step < end; i += 2 * step, x += 2 * stride, dy += 2 * stride) {
    auto x0 = *reinterpret_cast<const Held<T, V>*>(x), x1 = *reinterpret_cast<const Held<T, V>*>(x + stride);
    auto dy0 = *reinterpret_cast<const Held<T, V>*>(dy), dy1 = *reinterpret_cast<const Held<T, V>*>(dy + stride);
    use(x0, dy0, i);
    use(x1, dy1, i + step);
  }
  if (i >= end) return;
  auto x0 = *reinterpret_cast<const Held<T, V>*>(x);
  auto dy0 = *reinterpret_cast<const Held<T, V>*>(dy);
  use(x0, dy0, i);
}

// What one thread knows of its V channels while it sums.
template <class T, int V> struct Summing {
  real_t<T> mean[V], scale[V], offset[V], sums[2 * V] = {};  // of dz, and of dz (x - mean)

  __device__ Summing(const Channels<T>& c, int64_t n, int channel) {
    read_entries<V>(c.weight, channel, real_t<T>(1), scale);
    read_entries<V>(c.bias, channel, real_t<T>(0), offset);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      int64_t group = n * c.groups + (channel + i) / c.width;
      mean[i] = c.mean[group], scale[i] *= c.rstd[group];
    }
  }
  template <bool kSilu> __device__ void add(const Held<T, V>& held_x, const Held<T, V>& held_dy) {
    real_t<T> x[V], dy[V];
    held_x.widen_to(x);
    held_dy.widen_to(dy);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const real_t<T> distance = x[i] - mean[i], d = dz_of<T, kSilu>(distance, dy[i], scale[i], offset[i]);
      sums[2 * i] += d;
      sums[2 * i + 1] += d * distance;
    }
  }
};
template <bool kSilu, class T, int V>
__device__ inline void write_dx(T* out, const Held<T, V>& held_x, const Held<T, V>& held_dy,
                                const Terms<real_t<T>> (&k)[V]) {
  real_t<T> x[V], dy[V];
  held_x.widen_to(x);
  held_dy.widen_to(dy);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const real_t<T> distance = x[i] - k[i].mean, dz = dz_of<T, kSilu>(distance, dy[i], k[i].scale, k[i].offset);
    x[i] = k[i].scale * dz - k[i].base - distance * k[i].slope;
  }
  write_lanes<V>(out, x);
}

// NHWC: a block per group, dx included.
template <class T, int V>
__global__ void __launch_bounds__(kGroupThreads)
    whole_groups(Channels<T> c, ChannelSums<real_t<T>>* of_channel, PreviousGrid previous) {
  using A = real_t<T>;
  const int64_t n = blockIdx.x / c.groups;
  const int channel0 = int(blockIdx.x % c.groups) * c.width;
  const Tile t(c.width / V);
  const int channel = channel0 + t.column * V;
  const int64_t at = (n * c.space + t.pixel) * c.channels + channel, stride = int64_t(t.step) * c.channels,
                end = t.works() ? c.space : 0;
  previous.wait();
  const A rstd = c.rstd[blockIdx.x];
  A of_group[2] = {};
  {
    alignas(16) __shared__ A places[kGroupThreads * ChannelTable<A, V>::kPitch];
    const ChannelTable<A, V> table(places);
    Summing<T, V> s(c, n, channel);
    with_silu(c.silu, [&](auto silu) {
      for_pairs<T, V>(c.x + at, c.dy + at, stride, t.pixel, end, t.step,
                      [&](const Held<T, V>& x, const Held<T, V>& dy, int64_t) { s.template add<silu()>(x, dy); });
    });
    if (t.works()) table.put(int(threadIdx.x), s.sums);
    __syncthreads();
    table.sums(t.step, t.across, c.width, [&](int i, A dz, A dz_distance) {
      of_channel[n * c.channels + channel0 + i] = {dz, dz_distance * rstd};
      const A weight = c.weight_of(channel0 + i);
      of_group[0] += weight * dz;
      of_group[1] += weight * (dz_distance * rstd);
    });
  }
  block_sums(of_group);
  Terms<A> k[V];
  const Terms<A> terms = terms_of<T>(c, blockIdx.x, of_group);
  A weight[V], offset[V];
  read_entries<V>(c.weight, channel, A(1), weight);
  read_entries<V>(c.bias, channel, A(0), offset);
#pragma unroll
  for (int i = 0; i < V; ++i) k[i] = terms.of_channel(weight[i], offset[i]);
  T* out = c.out + at;
  with_silu(c.silu, [&](auto silu) {
    for_pairs<T, V>(c.x + at, c.dy + at, stride, t.pixel, end, t.step,
                    [&](const Held<T, V>& x, const Held<T, V>& dy, int64_t) {
                      write_dx<silu()>(out, x, dy, k);
                      out += stride;
                    });
  });
}

// NHWC: sums of the channels of one piece of a picture.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    pixel_sums(Channels<T> c, Split s, ChannelSums<real_t<T>>* out, PreviousGrid previous) {
  using A = real_t<T>;
  const Tile t(s.columns);
  const int channel0 = int(blockIdx.x) % s.chunks * s.columns * V, channel = channel0 + t.column * V;
  const int64_t piece = blockIdx.x / s.chunks, n = piece / s.pieces, first = piece % s.pieces * s.pixels,
                at = (n * c.space + first + t.pixel) * c.channels + channel;
  const bool works = t.works() && channel < c.channels;
  const int end = works ? int(lesser(c.space - first, s.pixels)) : 0;
  previous.wait();
  Summing<T, V> sums(c, n, works ? channel : 0);
  alignas(16) __shared__ A places[kThreads * ChannelTable<A, V>::kPitch];
  const ChannelTable<A, V> table(places);
  with_silu(c.silu, [&](auto silu) {
    for_pairs<T, V>(c.x + at, c.dy + at, int64_t(t.step) * c.channels, t.pixel, end, t.step,
                    [&](const Held<T, V>& x, const Held<T, V>& dy, int64_t) { sums.template add<silu()>(x, dy); });
  });
  if (t.works()) table.put(int(threadIdx.x), sums.sums);
  __syncthreads();
  const int left = c.channels - channel0;
  table.sums(t.step, s.columns, left < s.columns * V ? left : s.columns * V, [&](int i, A dz, A dz_distance) {
    const A rstd = c.rstd[n * c.groups + (channel0 + i) / c.width];
    out[piece * c.channels + channel0 + i] = {dz, dz_distance * rstd};
  });
}

// NCHW: a warp or a block per plane.
template <class T, int V, int kGroup>
__global__ void __launch_bounds__(kThreads)
    plane_sums(Channels<T> c, ChannelSums<real_t<T>>* out, PreviousGrid previous) {
  using G = RowThreads<kGroup>;
  const int64_t plane = G::row();
  previous.wait();
  if (plane >= c.batch * c.channels) return;
  const int channel = int(plane % c.channels);
  const int64_t group = plane / c.channels * c.groups + channel / c.width, at = plane * c.space + G::lane() * V;
  const real_t<T> mean = c.mean[group], rstd = c.rstd[group], scale = rstd * c.weight_of(channel),
                  offset = c.bias_of(channel);
  real_t<T> dz = 0, dz_hat = 0;
  with_silu(c.silu, [&](auto silu) {
    for_pairs<T, V>(c.x + at, c.dy + at, kGroup * V, int64_t(G::lane()), c.space / V, kGroup,
                    [&](const Held<T, V>& held_x, const Held<T, V>& held_dy, int64_t) {
                      real_t<T> x[V], dy[V];
                      held_x.widen_to(x);
                      held_dy.widen_to(dy);
#pragma unroll
                      for (int i = 0; i < V; ++i) {
                        const real_t<T> distance = x[i] - mean, d = dz_of<T, silu()>(distance, dy[i], scale, offset);
                        dz += d;
                        dz_hat += d * distance * rstd;
                      }
                    });
  });
  dz = G::sum(dz), dz_hat = G::sum(dz_hat);
  if (G::lane() == 0) out[plane] = {dz, dz_hat};
}

// A block per group: the sums of its channels over all pieces, its means, and what dx needs of each channel.
template <class T>
__global__ void __launch_bounds__(kThreads)
    group_means(Channels<T> c, int64_t pieces, const ChannelSums<real_t<T>>* of_piece,
                ChannelSums<real_t<T>>* of_channel, TermArrays<real_t<T>> k, PreviousGrid previous) {
  using A = real_t<T>;
  __shared__ A of_thread[2][kThreads];
  const int64_t n = blockIdx.x / c.groups;
  const int channel0 = int(blockIdx.x % c.groups) * c.width;
  const Tile t(c.width < kThreads ? c.width : kThreads);  // its "pixels" are pieces
  A of_group[2] = {};
  previous.wait();
  for (int begin = 0; begin < c.width; begin += t.across) {
    const int i = begin + t.column, channel = channel0 + i;
    Total<A> dz, dz_hat;
    for (int64_t p = t.pixel; t.works() && i < c.width && p < pieces; p += t.step) {
      const ChannelSums<A> s = of_piece[(n * pieces + p) * c.channels + channel];
      dz.add(s.dz), dz_hat.add(s.dz_hat);
    }
    __syncthreads();  // the last columns' are read
    of_thread[0][threadIdx.x] = dz.value();
    of_thread[1][threadIdx.x] = dz_hat.value();
    __syncthreads();
    if (t.pixel > 0 || i >= c.width) continue;
    for (int r = 1; r < t.step; ++r)
      dz.add(of_thread[0][threadIdx.x + r * t.across]), dz_hat.add(of_thread[1][threadIdx.x + r * t.across]);
    of_channel[n * c.channels + channel] = {dz.value(), dz_hat.value()};
    const A weight = c.weight_of(channel);
    of_group[0] += weight * dz.value();
    of_group[1] += weight * dz_hat.value();
  }
  block_sums(of_group);
  const Terms<A> terms = terms_of<T>(c, blockIdx.x, of_group);
#pragma unroll 1
  for (int i = int(threadIdx.x); i < c.width; i += kThreads) {
    const Terms<A> x = terms.of_channel(c.weight_of(channel0 + i), c.bias_of(channel0 + i));
    int64_t at = n * c.channels + channel0 + i;
    k.mean[at] = x.mean, k.scale[at] = x.scale, k.offset[at] = x.offset, k.base[at] = x.base, k.slope[at] = x.slope;
  }
}

// The last pixels first: the cache has them still.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    pixel_gradients(Channels<T> c, Split s, TermArrays<real_t<T>> k, PreviousGrid previous) {
  using A = real_t<T>;
  const Tile t(s.columns);
  const int tile = int(gridDim.x - 1 - blockIdx.x), channel = (tile % s.chunks * s.columns + t.column) * V;
  const int64_t piece = tile / s.chunks, n = piece / s.pieces, first = piece % s.pieces * s.pixels;
  previous.wait();
  if (!t.works() || channel >= c.channels) return;
  const int mine = RowCounts(int(lesser(c.space - first, s.pixels)), t.step)(t.pixel);
  const int64_t of = n * c.channels + channel, last = first + t.pixel + int64_t(mine - 1) * t.step,
                at = (n * c.space + last) * c.channels + channel, stride = -int64_t(t.step) * c.channels;
  Terms<A> terms[V];
  {
    A mean[V], scale[V], offset[V], base[V], slope[V];
    read_lanes<V>(k.mean + of, mean);
    read_lanes<V>(k.scale + of, scale);
    read_lanes<V>(k.offset + of, offset);
    read_lanes<V>(k.base + of, base);
    read_lanes<V>(k.slope + of, slope);
#pragma unroll
    for (int i = 0; i < V; ++i) terms[i] = {mean[i], scale[i], offset[i], base[i], slope[i]};
  }
  T* out = c.out + at;
  with_silu(c.silu, [&](auto silu) {
    for_pairs<T, V>(c.x + at, c.dy + at, stride, 0, mine, 1, [&](const Held<T, V>& x, const Held<T, V>& dy, int64_t) {
      write_dx<silu()>(out, x, dy, terms);
      out += stride;
    });
  });
}

// first: the first plane; count: vectors.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    plane_gradients(Channels<T> c, int64_t first, uint32_t count, Divider vectors_of_plane, TermArrays<real_t<T>> k,
                    PreviousGrid previous) {
  const uint32_t begin = blockIdx.x * uint32_t(kThreads * kAhead), mine = begin + threadIdx.x,
                 end = begin + uint32_t(kThreads * kAhead) < count ? begin + uint32_t(kThreads * kAhead) : count;
  const int64_t start = first * c.space;
  previous.wait();
  with_silu(c.silu, [&](auto silu) {
    for_pairs<T, V>(c.x + start + int64_t(mine) * V, c.dy + start + int64_t(mine) * V, kThreads * V, mine, end,
                    kThreads, [&](const Held<T, V>& x, const Held<T, V>& dy, int64_t at) {
                      const int64_t plane = first + vectors_of_plane.quotient(uint32_t(at));
                      Terms<real_t<T>> of[V];
#pragma unroll
                      for (int i = 0; i < V; ++i)
                        of[i] = {k.mean[plane], k.scale[plane], k.offset[plane], k.base[plane], k.slope[plane]};
                      write_dx<silu()>(c.out + start + at * V, x, dy, of);
                    });
  });
}

template <class A>
__global__ void __launch_bounds__(kThreads)
    parameter_gradients(int64_t batch, int64_t channels, const ChannelSums<A>* sums, Numbers dweight, Numbers dbias,
                        PreviousGrid previous) {
  int64_t channel = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  previous.wait();
  if (channel >= channels) return;
  Total<A> dz, dz_hat;
#pragma unroll 8
  for (int64_t n = 0; n < batch; ++n)
    dz.add(sums[n * channels + channel].dz), dz_hat.add(sums[n * channels + channel].dz_hat);
  if (dweight) dweight.set(channel, dz_hat.value());
  if (dbias) dbias.set(channel, dz.value());
}

template <class T, int V> void in_passes(const Channels<T>& c, Device device, ChannelSums<real_t<T>>* of_channel) {
  using A = real_t<T>;
  const int64_t planes = c.batch * c.channels;
  const Split s = c.last ? Split(c.batch, c.channels, c.width, c.space, V) : Split(1);
  Scratch sums(device, size_t(s.pieces * planes) * sizeof(ChannelSums<A>)),
      terms(device, size_t(planes) * 5 * sizeof(A));
  A* first = terms.as<A>();
  const TermArrays<A> k{first, first + planes, first + 2 * planes, first + 3 * planes, first + 4 * planes};
  auto* of_piece = sums.as<ChannelSums<A>>();
  const unsigned tiles = unsigned(c.batch * s.pieces * s.chunks);
  if (c.last) launch("group_norm_backward", device, tiles, pixel_sums<T, V>, c, s, of_piece);
  else if (c.space / V <= 8 * kWarp)
    launch("group_norm_backward", device, blocks_for(planes, 1) * kWarp, plane_sums<T, V, kWarp>, c, of_piece);
  else launch("group_norm_backward", device, unsigned(planes), plane_sums<T, V, kThreads>, c, of_piece);
  launch("group_norm_backward", device, unsigned(c.batch * c.groups), group_means<T>, c, s.pieces,
         sums.as<const ChannelSums<A>>(), of_channel, k);
  if (c.last) return launch("group_norm_backward", device, tiles, pixel_gradients<T, V>, c, s, k);
  for_plane_runs<V>("group_norm_backward", c, [&](int64_t plane, uint32_t count, const Divider& of_plane) {
    launch("group_norm_backward", device, blocks_for(count, kAhead), plane_gradients<T, V>, c, plane, count, of_plane,
           k);
  });
}

void backward(const GroupNormBackward& b) {
  as_float(b.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    Channels<T> c = channels_of<T>(b.x, b.weight, b.bias, b.groups, b.silu, b.mean, b.rstd);
    c.dy = b.dy.as<T>();
    c.out = b.dx.as<T>();
    Device device = b.x.device;
    const int64_t count = b.x.numel();
    Scratch channel_sums(device, size_t(c.batch * c.channels) * sizeof(ChannelSums<real_t<T>>));
    auto* of_channel = channel_sums.as<ChannelSums<real_t<T>>>();
    if (count > 0) {
      const T* dx = c.out;
      bool done = false;
      if (c.last)
        choose_lanes<T>(
            c.channels,
            [&](auto v) {
              if constexpr (v() == lanes_for<T>()) done = keep_gradients(c, device, of_channel);
            },
            c.x, c.dy, dx);
      if (!done && c.last && c.group_size() * int64_t(sizeof(T)) <= kCachedGroup)
        choose_lanes<T>(
            c.width,
            [&](auto v) {
              if (c.width / v() > kGroupThreads) return;
              launch("group_norm_backward", device, {unsigned(c.batch * c.groups), kGroupThreads}, whole_groups<T, v()>,
                     c, of_channel);
              done = true;
            },
            c.x, c.dy, dx);
      if (!done)
        choose_lanes<T>(
            c.last ? c.channels : c.space, [&](auto v) { in_passes<T, v()>(c, device, of_channel); }, c.x, c.dy, dx);
    }
    if ((b.dweight.defined() || b.dbias.defined()) && c.channels > 0)
      launch("group_norm_backward", device, blocks_for(c.channels, 1), parameter_gradients<real_t<T>>,
             count > 0 ? c.batch : int64_t(0), int64_t(c.channels),
             static_cast<const ChannelSums<real_t<T>>*>(of_channel), Numbers(b.dweight), Numbers(b.dbias));
  });
}

bool dense(const TensorView& x) { return x.is_contiguous() || x.is_channels_last(); }
SF_KERNEL(group_norm_backward, DeviceType::CUDA, "native", 0, backward,
          [](const GroupNormBackward& b) { return dense(b.x); })

}  // namespace
}  // namespace sf::cuda
