// What group_norm and its gradient share on CUDA: x[N, C, space] in memory as NCHW or NHWC, vectors of V neighbours,
// and which threads take them.
//
// NHWC: a thread keeps to the same V channels and goes from pixel to pixel, so that what belongs to a channel stays in
// registers and nothing is divided on the way. NCHW: V neighbours share a channel.
#pragma once
#include <algorithm>

#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/total.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/group_norm/kernel.h"

namespace sf::cuda {

template <class T> struct Channels {
  const T *x, *dy;
  T* out;  // y or dx
  Numbers weight, bias;
  int64_t batch, space;
  int32_t channels, groups, width;  // width: channels of a group
  real_t<T>*mean, *rstd;            // [N, G]
  real_t<T> eps;
  bool last, silu;  // NHWC
  // NHWC only: channels from `near` on lie in `beside`.
  const T* beside;
  int32_t near;

  __device__ __host__ int64_t group_size() const { return width * space; }
  __device__ real_t<T> weight_of(int c) const { return weight ? entry<real_t<T>>(weight, c) : real_t<T>(1); }
  __device__ real_t<T> bias_of(int c) const { return bias ? entry<real_t<T>>(bias, c) : real_t<T>(0); }

  // NHWC: a channel's first pixel in picture n, and the elements from one pixel to the next.
  struct Column {
    const T* first;
    int32_t stride;
  };
  // Counted from x in either case: of a pointer that is one of two the compiler forgets that it is device memory, and
  // each access would have to find out.
  __device__ Column column(int64_t n, int channel) const {
    int64_t bytes = 0;
    int32_t stride = near;
    if (channel >= near) {
      bytes = reinterpret_cast<const char*>(beside) - reinterpret_cast<const char*>(x);
      stride = channels - near, channel -= near;
    }
    bytes += (n * space * stride + channel) * int64_t(sizeof(T));
    return {reinterpret_cast<const T*>(reinterpret_cast<const char*>(x) + bytes), stride};
  }
};

// x[k] = numbers[first + k], or `otherwise` where there are none.
template <int V, class A>
__device__ inline void read_entries(const Numbers& numbers, int first, A otherwise, A (&x)[V]) {
  auto as = [&](auto tag) {
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = A(widen(static_cast<const decltype(tag)*>(numbers.data)[first + k]));
  };
  if (!numbers) {
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = otherwise;
    return;
  }
  switch (numbers.dtype) {
    case kFloat32: return as(float());
    case kBFloat16: return as(BFloat16());
    case kFloat16: return as(Half());
    default: return as(double());
  }
}

// 1 / (1 + e^-z). What ends up in 16 bits takes the GPU's fast instructions, a few units of float32's last place away.
template <class T> __device__ inline real_t<T> sigmoid_of(real_t<T> z) {
  if constexpr (sizeof(T) == 2) return divide_fast(1.0f, 1.0f + exp_fast(-z));
  else return real_t<T>(1) / (real_t<T>(1) + exp_of(-z));
}
template <class T> __device__ inline real_t<T> silu_of(real_t<T> z) {
  if constexpr (sizeof(T) == 2) return divide_fast(z, 1.0f + exp_fast(-z));
  else return z / (real_t<T>(1) + exp_of(-z));
}

// y of x; scale: weight / standard deviation.
template <class T, bool kSilu>
__device__ inline real_t<T> normalised(real_t<T> x, real_t<T> mean, real_t<T> scale, real_t<T> offset) {
  const real_t<T> z = (x - mean) * scale + offset;
  if constexpr (kSilu) return silu_of<T>(z);
  else return z;
}
// f(whether there is a SiLU, as a constant): no question of it in a loop.
template <class F> __device__ inline void with_silu(bool silu, const F& f) {
  if (silu) f(std::true_type());
  else f(std::false_type());
}

__device__ inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

// Threads over a run of pixels by a run of columns (vectors of channels): `across` of them side by side,
// the rest on the pixels behind.
struct Tile {
  int across, column, pixel, step;  // column: of this thread; pixel: its first one; step: pixels from one to its next
  __device__ Tile(int columns)
      : across(columns),
        column(int(threadIdx.x) % columns),
        pixel(int(threadIdx.x) / columns),
        step(int(blockDim.x) / columns) {}
  __device__ bool works() const { return pixel < step; }
};

// Vectors at p, p + stride ... while first + k * step < end: kDeep of them are read before the first is used, since y
// may be x and the compiler must not move a read over a write. use(vector, its index: first, first + step ...).
inline constexpr int kAhead = 4;
template <class T, int V, int kDeep = kAhead, class I, class F>
__device__ inline void for_vectors(const T* p, int64_t stride, I first, std::type_identity_t<I> end,
                                   std::type_identity_t<I> step, const F& use) {
  I i = first;
  for (; i + (kDeep - 1) * step < end; i += kDeep * step, p += kDeep * stride) {
    Held<T, V> ahead[kDeep];
#pragma unroll
    for (int k = 0; k < kDeep; ++k) ahead[k] = *reinterpret_cast<const Held<T, V>*>(p + k * stride);
#pragma unroll
    for (int k = 0; k < kDeep; ++k) use(ahead[k], i + k * step);
  }
  for (; i < end; i += step, p += stride) {
    const Held<T, V> x = *reinterpret_cast<const Held<T, V>*>(p);
    use(x, i);
  }
}

// Of counts: the last digits of the quotient do not matter.
__device__ inline float ratio(float a, float b) { return divide_fast(a, b); }
__device__ inline double ratio(double a, double b) { return a / b; }

// Of some elements: their number, mean, and sum of squared distances from it.
template <class A> struct Moments { A count = 0, mean = 0, squares = 0; };
// Those of both together (Chan, Golub and LeVeque, 1979): nothing cancels, whatever the means are.
template <class A> __device__ inline void join(Moments<A>& a, const Moments<A>& b) {
  if (b.count == A(0)) return;
  if (a.count == A(0)) {
    a = b;
    return;
  }
  const A count = a.count + b.count, part = ratio(b.count, count), apart = b.mean - a.mean;
  a.mean += apart * part;
  a.squares += b.squares + apart * apart * a.count * part;
  a.count = count;
}

// What a thread adds up of its own elements: distances from a shift near them. An element far from the others, be it
// the first, costs the digits of the few sums that it is in, and there it is the variance.
template <class A> struct Distances {
  A shift, sum = 0, squares = 0;
  __device__ explicit Distances(A near) : shift(near) {}
  __device__ void add(A x) {
    const A d = x - shift;
    sum += d;
    squares += d * d;
  }
  __device__ Moments<A> moments(A count) const {
    if (count == A(0)) return {};
    const A mean = sum / count, about_mean = squares - sum * mean;
    return {count, shift + mean, about_mean > A(0) ? about_mean : A(0)};
  }
};
template <class A, class T, int V> __device__ inline A mean_of(const Held<T, V>& from) {
  A sum = 0, x[V];
  from.widen_to(x);
#pragma unroll
  for (int i = 0; i < V; ++i) sum += x[i];
  return sum / A(V);
}

// Those of the warp's lanes, in every lane and in one order.
template <class A> __device__ inline Moments<A> warp_moments(const Moments<A>& m) {
  auto total = [](A x) { return warp_all(x, [](A a, A b) { return a + b; }); };
  const A near = __shfl_sync(~0u, m.mean, 0), count = total(m.count), sum = total(m.count * (m.mean - near));
  const A mean = count > A(0) ? near + sum / count : A(0), apart = m.mean - mean;
  return {count, mean, total(m.squares + m.count * apart * apart)};
}

// Pixels of each row of threads (Tile) where `rows` of them take turns.
struct RowCounts {
  int each, rest;
  __device__ RowCounts(int pixels, int rows) : each(pixels / rows), rest(pixels - each * rows) {}
  __device__ int operator()(int row) const { return each + (row < rest); }
};

// In shared memory, of each thread of a Tile: two numbers of each of its V channels, such as mean and sum of squared
// distances. A thread's place has 16 bytes more than it needs, so that neighbours write to different banks.
template <class A, int V> struct ChannelTable {
  static constexpr int kAtOnce = V == 1 ? 2 : int(16 / sizeof(A)), kPitch = 2 * V + (V == 1 ? 0 : kAtOnce);
  A* at;
  __device__ explicit ChannelTable(A* begin) : at(begin) {}

  __device__ void put(int thread, const A (&x)[2 * V]) const {
#pragma unroll
    for (int i = 0; i < 2 * V; i += kAtOnce) {
      Vec<A, kAtOnce> some;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) some.v[j] = x[i + j];
      *reinterpret_cast<Vec<A, kAtOnce>*>(at + thread * kPitch + i) = some;
    }
  }
  __device__ const A* entry_of(int row, int columns, int channel) const {
    return at + (row * columns + channel / V) * kPitch + channel % V * 2;
  }
  // sum, squares: of the distances from shift.
  __device__ void put_moments(int thread, const A (&shift)[V], const A (&sum)[V], const A (&squares)[V],
                              A count) const {
    const A each = count > A(0) ? A(1) / count : A(0);
    A x[2 * V];
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const A mean = sum[i] * each, about_mean = squares[i] - sum[i] * mean;
      x[2 * i] = shift[i] + mean, x[2 * i + 1] = about_mean > A(0) ? about_mean : A(0);
    }
    put(thread, x);
  }
  // Of `width` channels from `first` on in rows of `columns` threads, by a warp.
  __device__ Moments<A> moments(const RowCounts& count, int columns, int first, int width, int row, int end) const {
    const int lane = int(threadIdx.x) % kWarp, down = kWarp / width, right = kWarp - down * width;
    Moments<A> m;
    row += lane / width;
    for (int i = lane % width; row < end; row += down, i += right) {
      if (i >= width) {
        i -= width;
        if (++row >= end) break;
      }
      const A* x = entry_of(row, columns, first + i);
      join(m, {A(count(row)), x[0], x[1]});
    }
    return warp_moments(m);
  }
  // done(channel, sums of both of its numbers over the rows), by one thread for each channel. All threads of the block,
  // which has whole warps.
  template <class F> __device__ void sums(int rows, int columns, int channels, const F& done) const {
    constexpr int kLanes = 8;  // that share a channel
    const int lane = int(threadIdx.x) % kLanes, abreast = int(blockDim.x) / kLanes;
    for (int first = 0; first < channels; first += abreast) {
      const int channel = first + int(threadIdx.x) / kLanes;
      Total<A> of_first, of_second;
      for (int row = lane; channel < channels && row < rows; row += kLanes) {
        const A* x = entry_of(row, columns, channel);
        of_first.add(x[0]), of_second.add(x[1]);
      }
      A a = of_first.value(), b = of_second.value();
#pragma unroll
      for (int with = kLanes / 2; with > 0; with /= 2)
        a += __shfl_xor_sync(~0u, a, with), b += __shfl_xor_sync(~0u, b, with);
      if (lane == 0 && channel < channels) done(channel, a, b);
    }
  }
};

// Those of all of the block's threads, in every thread and in one order. The block has whole warps.
template <class A> __device__ inline Moments<A> block_moments(Moments<A> m) {
  __shared__ A of_warp[3][kWarp];
  const int lane = int(threadIdx.x) % kWarp, warps = int(blockDim.x) / kWarp;
  auto join_lanes = [&] {  // lane 0 gets all
#pragma unroll
    for (int by = kWarp / 2; by > 0; by /= 2)
      join(m, {__shfl_down_sync(~0u, m.count, by), __shfl_down_sync(~0u, m.mean, by),
               __shfl_down_sync(~0u, m.squares, by)});
  };
  join_lanes();
  __syncthreads();  // the last call's are read
  if (lane == 0) {
    const int w = int(threadIdx.x) / kWarp;
    of_warp[0][w] = m.count, of_warp[1][w] = m.mean, of_warp[2][w] = m.squares;
  }
  __syncthreads();
  m = {};
  if (lane < warps) m = {of_warp[0][lane], of_warp[1][lane], of_warp[2][lane]};
  join_lanes();
  return {__shfl_sync(~0u, m.count, 0), __shfl_sync(~0u, m.mean, 0), __shfl_sync(~0u, m.squares, 0)};
}

// The sums of each x[k] over the block's threads, in every thread and in one order. The block has whole warps.
template <class A, int kCount> __device__ inline void block_sums(A (&x)[kCount]) {
  __shared__ A of_warp[kCount][kWarp];
  int warps = int(blockDim.x) / kWarp;
  __syncthreads();  // the last call's are read
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    x[k] = warp_all(x[k], [](A a, A b) { return a + b; });
    if (threadIdx.x % kWarp == 0) of_warp[k][threadIdx.x / kWarp] = x[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    x[k] = of_warp[k][0];
    for (int w = 1; w < warps; ++w) x[k] += of_warp[k][w];
  }
}

// f(V): the longest vectors of T that divide n elements and to which all of these pointers are aligned.
template <class T, class F, class... P> void choose_lanes(int64_t n, const F& f, const P*... p) {
  constexpr int most = lanes_for<T>();
  if (aligned_rows<T, most>(n, p...)) return f(std::integral_constant<int, most>());
  if constexpr (most > 2)
    if (aligned_rows<T, most / 2>(n, p...)) return f(std::integral_constant<int, most / 2>());
  if constexpr (most > 4)
    if (aligned_rows<T, most / 4>(n, p...)) return f(std::integral_constant<int, most / 4>());
  f(std::integral_constant<int, 1>());
}

template <class T>
Channels<T> channels_of(const TensorView& x, const TensorView& weight, const TensorView& bias, int64_t groups,
                        bool silu, const TensorView& mean, const TensorView& rstd) {
  Channels<T> c{};
  c.x = x.as<T>();
  c.weight = weight, c.bias = bias;
  c.batch = x.sizes[0], c.channels = int32_t(x.sizes[1]), c.groups = int32_t(groups), c.width = c.channels / c.groups;
  c.space = c.batch * c.channels > 0 ? x.numel() / (c.batch * c.channels) : 0;
  c.mean = mean.as<real_t<T>>(), c.rstd = rstd.as<real_t<T>>();
  c.last = !x.is_contiguous();
  c.silu = silu;
  c.near = c.channels;
  return c;
}

// Blocks that share the pixels of a picture: about kPiece elements each, and in all not many more than are on the GPU
// at a time, so that joining them does not count.
struct Split {
  static constexpr int64_t kPiece = 16384, kMostPieces = 1024;
  static constexpr int64_t kMostBlocks = 1056;  // eight on each of 132 multiprocessors, in two rounds of four
  int columns = 1, chunks = 1;                  // vectors of channels side by side in a block; blocks side by side
  int64_t pixels = 0, pieces = 1;               // of a block; of a picture
  int groups = 1;                               // that a chunk has a part of, at most
  int slices = 1;                               // runs of rows of threads that warps join by themselves
  explicit Split(int64_t planes_pieces) : pieces(planes_pieces) {}  // NCHW, where a piece is a run of a group
  Split(int64_t batch, int64_t channels, int64_t width, int64_t space, int lanes) {
    int64_t vectors = channels / lanes;
    chunks = int((vectors + 127) / 128);
    columns = int((vectors + chunks - 1) / chunks);
    const int64_t most = std::max(int64_t(1), kMostBlocks / (batch * chunks)), piece = kPiece / (columns * lanes);
    pixels = std::max((space + most - 1) / most, piece);
    pieces = (space + pixels - 1) / pixels;
    for (int chunk = 0; chunk < chunks; ++chunk) groups = std::max(groups, groups_of(chunk, channels, width, lanes));
    while (slices * 2 * groups <= kThreads / kWarp && slices * 2 <= kThreads / columns) slices *= 2;
  }
  int groups_of(int chunk, int64_t channels, int64_t width, int lanes) const {
    const int64_t begin = int64_t(chunk) * columns * lanes, end = std::min(begin + columns * lanes, channels);
    return begin < end ? int((end - 1) / width - begin / width) + 1 : 0;
  }
};

// f(first plane, vectors, their number in a plane) for runs of whole pictures of fewer than 2^31 vectors.
template <int V, class T, class F> void for_plane_runs(const char* op, const Channels<T>& c, const F& f) {
  const int64_t of_plane = c.space / V, of_picture = of_plane * c.channels;
  SF_CHECK(of_picture <= INT32_MAX, op, ": a picture may have ", INT32_MAX, " vectors of ", V,
           " elements at most in contiguous memory, got ", of_picture, ". Use channels_last");
  const int64_t pictures = INT32_MAX / of_picture;
  for (int64_t n = 0; n < c.batch; n += pictures)
    f(n * c.channels, uint32_t(of_picture * (c.batch - n < pictures ? c.batch - n : pictures)),
      Divider(uint32_t(of_plane)));
}

}  // namespace sf::cuda
