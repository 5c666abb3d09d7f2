// What group_norm and its gradient share on CUDA: x[N, C, space] in memory as NCHW or NHWC, vectors of V neighbours,
// and which threads take them.
//
// NHWC: a thread keeps to the same V channels and goes from pixel to pixel, so that what belongs to a channel stays in
// registers and nothing is divided on the way. NCHW: V neighbours share a channel.
#pragma once
#include "scaffolding/backend/cuda/rows.cuh"
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
template <class T, int V, int kDeep = kAhead, class F>
__device__ inline void for_vectors(const T* p, int64_t stride, int64_t first, int64_t end, int64_t step, const F& use) {
  int64_t i = first;
  for (; i + (kDeep - 1) * step < end; i += kDeep * step, p += kDeep * stride) {
    Vec<T, V> ahead[kDeep];
#pragma unroll
    for (int k = 0; k < kDeep; ++k) ahead[k] = *reinterpret_cast<const Vec<T, V>*>(p + k * stride);
#pragma unroll
    for (int k = 0; k < kDeep; ++k) use(ahead[k], i + k * step);
  }
  for (; i < end; i += step, p += stride) {
    const Vec<T, V> x = *reinterpret_cast<const Vec<T, V>*>(p);
    use(x, i);
  }
}

// Of some elements: their number, mean, and sum of squared distances from it.
template <class A> struct Moments { A count = 0, mean = 0, squares = 0; };
// Those of both together (Chan, Golub and LeVeque, 1979): nothing cancels, whatever the means are.
template <class A> __device__ inline void join(Moments<A>& a, const Moments<A>& b) {
  if (b.count == A(0)) return;
  const A count = a.count + b.count, part = b.count / count, apart = b.mean - a.mean;
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
template <class A, class T, int V> __device__ inline A mean_of(const Vec<T, V>& x) {
  A sum = 0;
#pragma unroll
  for (int i = 0; i < V; ++i) sum += A(widen(x.v[i]));
  return sum / A(V);
}

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
template <int kCount> __device__ inline void block_sums(double (&x)[kCount]) {
  __shared__ double of_warp[kCount][kWarp];
  int warps = int(blockDim.x) / kWarp;
  __syncthreads();  // the last call's are read
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    x[k] = warp_all(x[k], [](double a, double b) { return a + b; });
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

// Blocks that share the pixels of a picture: about kPiece elements each, and not so many that joining them counts.
struct Split {
  static constexpr int64_t kPiece = 16384, kMostPieces = 1024;
  int columns = 1, chunks = 1;     // vectors of channels side by side in a block; blocks side by side
  int64_t pixels = 0, pieces = 1;  // of a block; of a picture
  explicit Split(int64_t planes_pieces) : pieces(planes_pieces) {}  // NCHW, where a piece is a run of a group
  Split(int64_t channels, int64_t space, int lanes) {
    int64_t vectors = channels / lanes;
    chunks = int((vectors + 127) / 128);
    columns = int((vectors + chunks - 1) / chunks);
    pixels = (space + kMostPieces - 1) / kMostPieces;
    int64_t piece = kPiece / (columns * lanes);
    if (pixels < piece) pixels = piece;
    pieces = (space + pixels - 1) / pixels;
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
