// group_norm (+ SiLU) on CUDA. Channels-last: where a cluster of blocks has room for groups, in one launch, in
// registers (held_groups.cuh) or in shared memory (kept_groups.cuh).
// Else, contiguous and channels-last alike: a group that fits the cache of a multiprocessor has a block,
// which reads it from device memory once, in one launch. Larger ones: moments of pieces, the groups' statistics from
// them, and one pass that writes y. Sums are in an order that depends on shapes alone: no atomics.
#include <numeric>

#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/group_norm/held_groups.cuh"
#include "scaffolding/ops/group_norm/kept_groups.cuh"

namespace sf::cuda {
namespace {

// bytes of a group that one block reads twice: half of a multiprocessor's cache
constexpr int64_t kCachedGroup = 128 << 10;

constexpr int kPlanesOfBlock = 256;  // NCHW: channels of such a group at most

template <class A> struct Statistics { A mean, rstd; };
// Of the group that the block has; kept in c.
template <class T>
__device__ inline Statistics<real_t<T>> statistics(const Channels<T>& c, const Moments<real_t<T>>& m) {
  using A = real_t<T>;
  const Statistics<A> s{m.mean, A(1) / ::sqrt(m.squares / A(c.group_size()) + c.eps)};
  if (threadIdx.x == 0) c.mean[blockIdx.x] = s.mean, c.rstd[blockIdx.x] = s.rstd;
  return s;
}

// A block per group.
template <class T, int V, bool kLast, int kBlock>
__global__ void __launch_bounds__(kBlock) whole_groups(Channels<T> c, Divider vectors_of_plane, PreviousGrid previous) {
  using A = real_t<T>;
  constexpr int kDeep = kBlock > kThreads ? 2 : kAhead;  // a thread of a large block has 64 registers
  const int n = int(blockIdx.x) / c.groups, g = int(blockIdx.x) - n * c.groups;
  const Tile t(kLast ? c.width / V : 1);
  const int64_t size = c.group_size(), end = !t.works() ? 0 : kLast ? c.space : size / V;
  // What this thread reads.
  const auto [x, between] =
      kLast ? c.column(n, g * c.width + t.column * V) : typename Channels<T>::Column{c.x + blockIdx.x * size, V};
  const T* from = x + int64_t(t.pixel) * between;
  const int64_t stride = int64_t(t.step) * between;

  previous.wait();
  const int64_t mine = t.pixel < end ? (end - 1 - t.pixel) / t.step + 1 : 0;  // vectors
  Distances<A> distances(mine > 0 ? mean_of<A>(*reinterpret_cast<const Held<T, V>*>(from)) : A(0));
  for_vectors<T, V, kDeep>(from, stride, t.pixel, end, t.step, [&](const Held<T, V>& held, int64_t) {
    A x[V];
    held.widen_to(x);
#pragma unroll
    for (int i = 0; i < V; ++i) distances.add(x[i]);
  });
  const auto [mean, rstd] = statistics(c, block_moments(distances.moments(A(mine * V))));
  if (!c.out) return;

  if constexpr (kLast) {
    T* out = c.out + (n * c.space + t.pixel) * c.channels + g * c.width + t.column * V;
    A scale[V], offset[V];
    read_entries<V>(c.weight, g * c.width + t.column * V, A(1), scale);
    read_entries<V>(c.bias, g * c.width + t.column * V, A(0), offset);
#pragma unroll
    for (int i = 0; i < V; ++i) scale[i] *= rstd;
    with_silu(c.silu, [&](auto silu) {
      for_vectors<T, V, kDeep>(from, stride, t.pixel, end, t.step, [&](const Held<T, V>& held, int64_t) {
        A x[V];
        held.widen_to(x);
#pragma unroll
        for (int i = 0; i < V; ++i) x[i] = normalised<T, silu()>(x[i], mean, scale[i], offset[i]);
        write_lanes<V>(out, x);
        out += int64_t(t.step) * c.channels;
      });
    });
  } else {
    T* out = c.out + (from - c.x);
    __shared__ A scale[kPlanesOfBlock], offset[kPlanesOfBlock];
    for (int i = int(threadIdx.x); i < c.width; i += kBlock)
      scale[i] = rstd * c.weight_of(g * c.width + i), offset[i] = c.bias_of(g * c.width + i);
    __syncthreads();
    with_silu(c.silu, [&](auto silu) {
      for_vectors<T, V, kDeep>(from, stride, t.pixel, end, t.step, [&](const Held<T, V>& held, int64_t at) {
        const uint32_t plane = vectors_of_plane.quotient(uint32_t(at));
        A x[V];
        held.widen_to(x);
#pragma unroll
        for (int i = 0; i < V; ++i) x[i] = normalised<T, silu()>(x[i], mean, scale[plane], offset[plane]);
        write_lanes<V>(out, x);
        out += stride;
      });
    });
  }
}

// NHWC: moments of the groups, or parts of groups, of a chunk of channels in one piece of a picture.
// out[tile][slice][group of the chunk]
template <class T, int V>
__global__ void __launch_bounds__(kThreads, 4)
    pixel_moments(Channels<T> c, Split s, Moments<real_t<T>>* out, PreviousGrid previous) {
  using A = real_t<T>;
  alignas(16) __shared__ A places[kThreads * ChannelTable<A, V>::kPitch];
  const ChannelTable<A, V> table(places);
  const Tile t(s.columns);
  const int chunk = int(blockIdx.x) % s.chunks, channel0 = chunk * s.columns * V, channel = channel0 + t.column * V;
  const int64_t piece = blockIdx.x / s.chunks, n = piece / s.pieces, first = piece % s.pieces * s.pixels;
  const int pixels = int(lesser(c.space - first, s.pixels));
  const RowCounts counts(pixels, t.step);
  previous.wait();
  A shift[V] = {}, sum[V] = {}, squares[V] = {};
  const int mine = t.works() && channel < c.channels ? counts(t.pixel) : 0;
  if (mine > 0) {
    const auto [x, between] = c.column(n, channel);
    const T* from = x + (first + t.pixel) * between;
    read_lanes<V>(from, shift);
    for_vectors<T, V>(from, int64_t(t.step) * between, t.pixel, pixels, t.step, [&](const Held<T, V>& held, int64_t) {
      A x[V];
      held.widen_to(x);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const A d = x[i] - shift[i];
        sum[i] += d;
        squares[i] += d * d;
      }
    });
  }
  if (t.works()) table.put_moments(int(threadIdx.x), shift, sum, squares, A(mine));
  __syncthreads();
  const int end = channel0 + s.columns * V < c.channels ? channel0 + s.columns * V : c.channels,
            group0 = channel0 / c.width, groups = (end - 1) / c.width - group0 + 1;
  for (int job = int(threadIdx.x) / kWarp; job < groups * s.slices; job += kThreads / kWarp) {
    const int slice = job / groups, g = job - slice * groups;
    // the part of the group that lies in this chunk
    const int from = (group0 + g) * c.width > channel0 ? (group0 + g) * c.width : channel0,
              to = (group0 + g + 1) * c.width < end ? (group0 + g + 1) * c.width : end;
    const Moments<A> m = table.moments(counts, s.columns, from - channel0, to - from, slice * t.step / s.slices,
                                       (slice + 1) * t.step / s.slices);
    if (threadIdx.x % kWarp == 0) out[(int64_t(blockIdx.x) * s.slices + slice) * s.groups + g] = m;
  }
}

// NCHW: moments of pieces of a group, which is dense.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    plane_moments(Channels<T> c, int64_t pieces, Moments<real_t<T>>* out, PreviousGrid previous) {
  using A = real_t<T>;
  const int64_t size = c.group_size(), per = (size / V + pieces - 1) / pieces, group = blockIdx.x / pieces,
                first = blockIdx.x % pieces * per + threadIdx.x;
  const int64_t end = lesser(size / V, blockIdx.x % pieces * per + per);
  const T* x = c.x + group * size + first * V;
  previous.wait();
  const int64_t mine = first < end ? (end - 1 - first) / kThreads + 1 : 0;  // vectors
  Distances<A> distances(mine > 0 ? mean_of<A>(*reinterpret_cast<const Held<T, V>*>(x)) : A(0));
  for_vectors<T, V>(x, kThreads * V, first, end, kThreads, [&](const Held<T, V>& held, int64_t) {
    A v[V];
    held.widen_to(v);
#pragma unroll
    for (int i = 0; i < V; ++i) distances.add(v[i]);
  });
  const Moments<A> m = block_moments(distances.moments(A(mine * V)));
  if (threadIdx.x == 0) out[blockIdx.x] = m;
}

// What y needs of each channel of each picture: y = (x - mean) * scale + offset.
template <class A> struct Constants { A *mean, *scale, *offset; };

// A block per group: its statistics from the moments of its pieces, and its channels' constants. lanes: of a vector in
// NHWC.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    group_statistics(Channels<T> c, Split s, int lanes, const Moments<real_t<T>>* of_piece, Constants<real_t<T>> k,
                     PreviousGrid previous) {
  using A = real_t<T>;
  const int n = int(blockIdx.x) / c.groups, g = int(blockIdx.x) - n * c.groups;
  previous.wait();
  Moments<A> mine;
  if (c.last) {
    const int across = s.columns * lanes, chunk0 = g * c.width / across,
              chunks = ((g + 1) * c.width - 1) / across - chunk0 + 1, of_piece_count = chunks * s.slices;
    for (int i = int(threadIdx.x); i < int(s.pieces) * of_piece_count; i += kThreads) {
      const int piece = i / of_piece_count, rest = i - piece * of_piece_count, chunk = chunk0 + rest / s.slices,
                slice = rest % s.slices;
      const int64_t tile = (n * s.pieces + piece) * s.chunks + chunk;
      join(mine, of_piece[(tile * s.slices + slice) * s.groups + g - chunk * across / c.width]);
    }
  } else {
    for (int i = int(threadIdx.x); i < s.pieces; i += kThreads) join(mine, of_piece[blockIdx.x * s.pieces + i]);
  }
  const auto [mean, rstd] = statistics(c, block_moments(mine));
  for (int i = int(threadIdx.x); i < c.width; i += kThreads) {
    int channel = g * c.width + i;
    int64_t at = int64_t(n) * c.channels + channel;
    k.mean[at] = mean, k.scale[at] = rstd * c.weight_of(channel), k.offset[at] = c.bias_of(channel);
  }
}

// The last pixels first: the cache has them still.
template <class T, int V>
__global__ void __launch_bounds__(kThreads, 4)
    normalise_pixels(Channels<T> c, Split s, Constants<real_t<T>> k, PreviousGrid previous) {
  using A = real_t<T>;
  const Tile t(s.columns);
  const int tile = int(gridDim.x - 1 - blockIdx.x), channel = (tile % s.chunks * s.columns + t.column) * V;
  const int64_t piece = tile / s.chunks, n = piece / s.pieces, first = piece % s.pieces * s.pixels;
  previous.wait();
  if (!t.works() || channel >= c.channels) return;
  A mean[V], scale[V], offset[V];
  read_lanes<V>(k.mean + n * c.channels + channel, mean);
  read_lanes<V>(k.scale + n * c.channels + channel, scale);
  read_lanes<V>(k.offset + n * c.channels + channel, offset);
  const auto [x, between] = c.column(n, channel);
  const int mine = RowCounts(int(lesser(c.space - first, s.pixels)), t.step)(t.pixel);
  const int64_t last = first + t.pixel + int64_t(mine - 1) * t.step, stride = int64_t(t.step) * c.channels;
  T* out = c.out + (n * c.space + last) * c.channels + channel;
  with_silu(c.silu, [&](auto silu) {
    for_vectors<T, V>(x + last * between, -int64_t(t.step) * between, 0, mine, 1, [&](const Held<T, V>& held, int) {
      A x[V];
      held.widen_to(x);
#pragma unroll
      for (int i = 0; i < V; ++i) x[i] = normalised<T, silu()>(x[i], mean[i], scale[i], offset[i]);
      write_lanes<V>(out, x);
      out -= stride;
    });
  });
}

// first: the first plane; count: vectors.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    normalise_planes(Channels<T> c, int64_t first, uint32_t count, Divider vectors_of_plane, Constants<real_t<T>> k,
                     PreviousGrid previous) {
  using A = real_t<T>;
  const uint32_t begin = blockIdx.x * uint32_t(kThreads * kAhead), mine = begin + threadIdx.x;
  const int64_t start = first * c.space;
  previous.wait();
  with_silu(c.silu, [&](auto silu) {
    for_vectors<T, V>(c.x + start + int64_t(mine) * V, kThreads * V, mine,
                      lesser(int64_t(count), begin + uint32_t(kThreads * kAhead)), kThreads,
                      [&](const Held<T, V>& held, int64_t at) {
                        int64_t plane = first + vectors_of_plane.quotient(uint32_t(at));
                        A x[V], mean = k.mean[plane], scale = k.scale[plane], offset = k.offset[plane];
                        held.widen_to(x);
#pragma unroll
                        for (int i = 0; i < V; ++i) x[i] = normalised<T, silu()>(x[i], mean, scale, offset);
                        write_lanes<V>(c.out + start + at * V, x);
                      });
  });
}

template <class T, int V> void in_one_launch(const Channels<T>& c, Device device, bool wide) {
  const unsigned blocks = unsigned(c.batch * c.groups);
  const Divider plane(uint32_t(c.space / V > 0 ? c.space / V : 1));
  auto run = [&](auto last, auto threads) {
    launch("group_norm", device, {blocks, unsigned(threads())}, whole_groups<T, V, last(), threads()>, c, plane);
  };
  using Few = std::integral_constant<int, kThreads>;
  using Many = std::integral_constant<int, 1024>;
  if (c.last) wide ? run(std::true_type(), Many()) : run(std::true_type(), Few());
  else wide ? run(std::false_type(), Many()) : run(std::false_type(), Few());
}

template <class T, int V> void in_passes(const Channels<T>& c, Device device) {
  using A = real_t<T>;
  const int64_t groups = c.batch * c.groups, planes = c.batch * c.channels;
  const Split s = c.last ? Split(c.batch, c.channels, c.width, c.space, V)
                         : Split(std::min(Split::kMostPieces, (c.group_size() + Split::kPiece - 1) / Split::kPiece));
  const int64_t tiles = c.batch * s.pieces * s.chunks;
  Scratch moments(device, size_t(c.last ? tiles * s.slices * s.groups : s.pieces * groups) * sizeof(Moments<A>)),
      constants(device, size_t(planes) * 3 * sizeof(A));
  const Constants<A> k{constants.as<A>(), constants.as<A>() + planes, constants.as<A>() + 2 * planes};
  if (c.last) launch("group_norm", device, unsigned(tiles), pixel_moments<T, V>, c, s, moments.as<Moments<A>>());
  else
    launch("group_norm", device, unsigned(groups * s.pieces), plane_moments<T, V>, c, s.pieces,
           moments.as<Moments<A>>());
  launch("group_norm", device, unsigned(groups), group_statistics<T>, c, s, V, moments.as<const Moments<A>>(), k);
  if (!c.out) return;
  if (c.last) return launch("group_norm", device, unsigned(tiles), normalise_pixels<T, V>, c, s, k);
  for_plane_runs<V>("group_norm", c, [&](int64_t first, uint32_t count, const Divider& plane) {
    launch("group_norm", device, blocks_for(count, kAhead), normalise_planes<T, V>, c, first, count, plane, k);
  });
}

void forward(const GroupNormForward& f) {
  if (f.x.numel() == 0) return;
  as_float(f.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    Channels<T> c = channels_of<T>(f.beside.defined() ? f.y : f.x, f.weight, f.bias, f.groups, f.silu, f.mean, f.rstd);
    c.x = f.x.as<T>();
    // a single pixel is both
    if (f.beside.defined()) c.beside = f.beside.as<T>(), c.near = int32_t(f.x.sizes[1]), c.last = true;
    c.eps = real_t<T>(f.eps);
    c.out = f.y.defined() ? f.y.as<T>() : nullptr;
    const T *y = c.out, *beside = c.beside;
    // Neighbours in memory that a vector may hold: those of one plane,
    // or of one group's pixel where a block has one group.
    const bool cached = c.group_size() * int64_t(sizeof(T)) <= kCachedGroup;
    // And those of one tensor.
    auto lanes_in = [&](int64_t n, const auto& run) {
      choose_lanes<T>(std::gcd(n, beside ? int64_t(c.near) : n), run, c.x, y, beside);
    };
    bool done = false;
    if (c.last)
      lanes_in(c.channels, [&](auto v) {
        if constexpr (v() == lanes_for<T>()) done = hold_groups(c, f.x.device) || keep_groups(c, f.x.device);
      });
    if (!done && cached && (c.last || c.width <= kPlanesOfBlock))
      lanes_in(c.last ? c.width : c.space, [&](auto v) {
        constexpr int V = v();
        int64_t columns = c.last ? c.width / V : 1;
        if (columns > 1024) return;
        in_one_launch<T, V>(c, f.x.device, columns > kThreads || c.group_size() / V > 4 * kThreads);
        done = true;
      });
    if (!done) lanes_in(c.last ? c.channels : c.space, [&](auto v) { in_passes<T, v()>(c, f.x.device); });
  });
}

bool can(const GroupNormForward& f) {
  if (f.beside.defined()) return f.x.is_channels_last() && f.beside.is_channels_last() && f.y.is_channels_last();
  return f.x.is_contiguous() || f.x.is_channels_last();
}
SF_KERNEL(group_norm_forward, DeviceType::CUDA, "native", 0, forward, can)

}  // namespace
}  // namespace sf::cuda
