// group_norm (+ SiLU) on CUDA, contiguous and channels-last alike. A group that fits the cache of a multiprocessor has
// a block, which reads it from device memory once, in one launch. Larger ones: moments of pieces, the groups'
// statistics from them, and one pass that writes y. Sums are in an order that depends on shapes alone: no atomics.
#include <algorithm>
#include <numeric>

#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/group_norm/group_norm.cuh"

namespace sf::cuda {
namespace {

// bytes of a group that one block reads twice: half of a multiprocessor's cache
constexpr int64_t kCachedGroup = 128 << 10;

constexpr int kPlanesOfBlock = 256;  // NCHW: channels of such a group at most

template <class T>
__device__ inline real_t<T> normalised(const Channels<T>& c, real_t<T> x, real_t<T> mean, real_t<T> scale,
                                       real_t<T> offset) {
  real_t<T> z = (x - mean) * scale + offset;
  return c.silu ? silu_of<T>(z) : z;
}

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
__global__ void __launch_bounds__(kBlock) whole_groups(Channels<T> c, Divider vectors_of_plane) {
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

  const int64_t mine = t.pixel < end ? (end - 1 - t.pixel) / t.step + 1 : 0;  // vectors
  Distances<A> distances(mine > 0 ? mean_of<A>(*reinterpret_cast<const Vec<T, V>*>(from)) : A(0));
  for_vectors<T, V, kDeep>(from, stride, t.pixel, end, t.step, [&](const Vec<T, V>& x, int64_t) {
#pragma unroll
    for (int i = 0; i < V; ++i) distances.add(A(widen(x.v[i])));
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
    for_vectors<T, V, kDeep>(from, stride, t.pixel, end, t.step, [&](const Vec<T, V>& x, int64_t) {
      A y[V];
#pragma unroll
      for (int i = 0; i < V; ++i) y[i] = normalised(c, A(widen(x.v[i])), mean, scale[i], offset[i]);
      write_lanes<V>(out, y);
      out += int64_t(t.step) * c.channels;
    });
  } else {
    T* out = c.out + (from - c.x);
    __shared__ A scale[kPlanesOfBlock], offset[kPlanesOfBlock];
    for (int i = int(threadIdx.x); i < c.width; i += kBlock)
      scale[i] = rstd * c.weight_of(g * c.width + i), offset[i] = c.bias_of(g * c.width + i);
    __syncthreads();
    for_vectors<T, V, kDeep>(from, stride, t.pixel, end, t.step, [&](const Vec<T, V>& x, int64_t at) {
      const uint32_t plane = vectors_of_plane.quotient(uint32_t(at));
      A y[V];
#pragma unroll
      for (int i = 0; i < V; ++i) y[i] = normalised(c, A(widen(x.v[i])), mean, scale[plane], offset[plane]);
      write_lanes<V>(out, y);
      out += stride;
    });
  }
}

// NHWC: moments of the channels of one piece of a picture.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) pixel_moments(Channels<T> c, Split s, Moments<real_t<T>>* out) {
  using A = real_t<T>;
  __shared__ A of_thread[2][V][kThreads];
  const Tile t(s.columns);
  const int column = int(blockIdx.x) % s.chunks * s.columns + t.column, channel = column * V;
  const int64_t piece = blockIdx.x / s.chunks, n = piece / s.pieces, first = piece % s.pieces * s.pixels;
  const int64_t end = lesser(c.space, first + s.pixels);
  const bool works = t.works() && channel < c.channels;
  // of the threads whose first pixel is `pixel`
  auto count_of = [&](int pixel) { return first + pixel < end ? A((end - 1 - first - pixel) / t.step + 1) : A(0); };
  Moments<A> m[V];
  if (works && count_of(t.pixel) > A(0)) {
    const auto [x, between] = c.column(n, channel);
    const T* from = x + (first + t.pixel) * between;
    A shift[V], sum[V] = {}, squares[V] = {};
    read_lanes<V>(from, shift);
    for_vectors<T, V>(from, int64_t(t.step) * between, first + t.pixel, end, t.step, [&](const Vec<T, V>& v, int64_t) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        A d = A(widen(v.v[i])) - shift[i];
        sum[i] += d;
        squares[i] += d * d;
      }
    });
#pragma unroll
    for (int i = 0; i < V; ++i) {
      Distances<A> of_channel(shift[i]);
      of_channel.sum = sum[i], of_channel.squares = squares[i];
      m[i] = of_channel.moments(count_of(t.pixel));
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) of_thread[0][i][threadIdx.x] = m[i].mean, of_thread[1][i][threadIdx.x] = m[i].squares;
  __syncthreads();
  if (!works || t.pixel > 0) return;
#pragma unroll 1
  for (int r = 1; r < t.step; ++r) {
    const A count = count_of(r);
    const int at = int(threadIdx.x) + r * t.across;
#pragma unroll
    for (int i = 0; i < V; ++i) join(m[i], {count, of_thread[0][i][at], of_thread[1][i][at]});
  }
#pragma unroll
  for (int i = 0; i < V; ++i) out[piece * c.channels + channel + i] = m[i];
}

// NCHW: moments of pieces of a group, which is dense.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) plane_moments(Channels<T> c, int64_t pieces, Moments<real_t<T>>* out) {
  using A = real_t<T>;
  const int64_t size = c.group_size(), per = (size / V + pieces - 1) / pieces, group = blockIdx.x / pieces,
                first = blockIdx.x % pieces * per + threadIdx.x;
  const int64_t end = lesser(size / V, blockIdx.x % pieces * per + per);
  const T* x = c.x + group * size + first * V;
  const int64_t mine = first < end ? (end - 1 - first) / kThreads + 1 : 0;  // vectors
  Distances<A> distances(mine > 0 ? mean_of<A>(*reinterpret_cast<const Vec<T, V>*>(x)) : A(0));
  for_vectors<T, V>(x, kThreads * V, first, end, kThreads, [&](const Vec<T, V>& v, int64_t) {
#pragma unroll
    for (int i = 0; i < V; ++i) distances.add(A(widen(v.v[i])));
  });
  const Moments<A> m = block_moments(distances.moments(A(mine * V)));
  if (threadIdx.x == 0) out[blockIdx.x] = m;
}

// What y needs of each channel of each picture: y = (x - mean) * scale + offset.
template <class A> struct Constants { A *mean, *scale, *offset; };

// A block per group: its statistics from the moments of its pieces, and its channels' constants.
template <class T>
__global__ void __launch_bounds__(kThreads)
    group_statistics(Channels<T> c, Split s, const Moments<real_t<T>>* of_piece, Constants<real_t<T>> k) {
  using A = real_t<T>;
  const int n = int(blockIdx.x) / c.groups, g = int(blockIdx.x) - n * c.groups, columns = c.last ? c.width : 1;
  Moments<A> mine;
  for (int i = int(threadIdx.x); i < s.pieces * columns; i += kThreads) {
    int piece = i / columns, channel = i - piece * columns;
    join(
        mine,
        of_piece[c.last ? (n * s.pieces + piece) * c.channels + g * c.width + channel : blockIdx.x * s.pieces + piece]);
  }
  const auto [mean, rstd] = statistics(c, block_moments(mine));
  for (int i = int(threadIdx.x); i < c.width; i += kThreads) {
    int channel = g * c.width + i;
    int64_t at = int64_t(n) * c.channels + channel;
    k.mean[at] = mean, k.scale[at] = rstd * c.weight_of(channel), k.offset[at] = c.bias_of(channel);
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) normalise_pixels(Channels<T> c, Split s, Constants<real_t<T>> k) {
  using A = real_t<T>;
  const Tile t(s.columns);
  const int column = int(blockIdx.x) % s.chunks * s.columns + t.column, channel = column * V;
  const int64_t piece = blockIdx.x / s.chunks, n = piece / s.pieces, first = piece % s.pieces * s.pixels + t.pixel;
  if (!t.works() || channel >= c.channels) return;
  A mean[V], scale[V], offset[V];
  read_lanes<V>(k.mean + n * c.channels + channel, mean);
  read_lanes<V>(k.scale + n * c.channels + channel, scale);
  read_lanes<V>(k.offset + n * c.channels + channel, offset);
  const auto [x, between] = c.column(n, channel);
  const int64_t stride = int64_t(t.step) * c.channels;
  T* out = c.out + (n * c.space + first) * c.channels + channel;
  for_vectors<T, V>(x + first * between, int64_t(t.step) * between, first,
                    lesser(c.space, piece % s.pieces * s.pixels + s.pixels), t.step, [&](const Vec<T, V>& x, int64_t) {
                      A y[V];
#pragma unroll
                      for (int i = 0; i < V; ++i) y[i] = normalised(c, A(widen(x.v[i])), mean[i], scale[i], offset[i]);
                      write_lanes<V>(out, y);
                      out += stride;
                    });
}

// first: the first plane; count: vectors.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    normalise_planes(Channels<T> c, int64_t first, uint32_t count, Divider vectors_of_plane, Constants<real_t<T>> k) {
  using A = real_t<T>;
  const uint32_t begin = blockIdx.x * uint32_t(kThreads * kAhead), mine = begin + threadIdx.x;
  const int64_t start = first * c.space;
  for_vectors<T, V>(c.x + start + int64_t(mine) * V, kThreads * V, mine,
                    lesser(int64_t(count), begin + uint32_t(kThreads * kAhead)), kThreads,
                    [&](const Vec<T, V>& x, int64_t at) {
                      int64_t plane = first + vectors_of_plane.quotient(uint32_t(at));
                      A y[V], mean = k.mean[plane], scale = k.scale[plane], offset = k.offset[plane];
#pragma unroll
                      for (int i = 0; i < V; ++i) y[i] = normalised(c, A(widen(x.v[i])), mean, scale, offset);
                      write_lanes<V>(c.out + start + at * V, y);
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
  const Split s = c.last ? Split(c.channels, c.space, V)
                         : Split(std::min(Split::kMostPieces, (c.group_size() + Split::kPiece - 1) / Split::kPiece));
  Scratch moments(device, size_t(s.pieces * (c.last ? planes : groups)) * sizeof(Moments<A>)),
      constants(device, size_t(planes) * 3 * sizeof(A));
  const Constants<A> k{constants.as<A>(), constants.as<A>() + planes, constants.as<A>() + 2 * planes};
  const unsigned tiles = unsigned(c.batch * s.pieces * s.chunks);
  if (c.last) launch("group_norm", device, tiles, pixel_moments<T, V>, c, s, moments.as<Moments<A>>());
  else
    launch("group_norm", device, unsigned(groups * s.pieces), plane_moments<T, V>, c, s.pieces,
           moments.as<Moments<A>>());
  launch("group_norm", device, unsigned(groups), group_statistics<T>, c, s, moments.as<const Moments<A>>(), k);
  if (!c.out) return;
  if (c.last) return launch("group_norm", device, tiles, normalise_pixels<T, V>, c, s, k);
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
    if (cached && (c.last || c.width <= kPlanesOfBlock))
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
