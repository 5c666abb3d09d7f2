// batch_norm on CUDA, for NCHW and NHWC memory. Means and squared deviations come from the reductions (a mean first,
// then squares of what differs from it); the two sums of the gradient are added up here, in a fixed order. What then
// happens to every element is a multiply-add with numbers of its channel, one read and one write.
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/cuda/total.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/batch_norm/kernel.h"
#include "scaffolding/ops/reduce/kernel.h"

namespace sf::cuda {
namespace {

// x[N, C, space] in vectors of V: within a channel (NCHW), or of V channels (NHWC).
// Fewer than 2^31 vectors in a launch.
struct Layout {
  int64_t n, c, space;
  bool last;       // NHWC
  Divider runs;    // vectors of a channel's space (NCHW), of a pixel (NHWC)
  Divider planes;  // C (NCHW)

  Layout(const TensorView& x, int V)
      : n(x.sizes[0]), c(x.sizes[1]), space(1), last(!x.is_contiguous() && x.is_channels_last()) {
    for (int d = 2; d < x.ndim; ++d) space *= x.sizes[d];
    int64_t of_run = (last ? c : space) / V;
    runs = Divider(uint32_t(of_run > 0 ? of_run : 1));
    planes = Divider(uint32_t(c));
  }
  // The channel of vector i, its first one in NHWC.
  template <int V> __device__ uint32_t channel(uint32_t i) const {
    uint32_t q = runs.quotient(i);
    return last ? (i - q * runs.d) * V : q - planes.quotient(q) * planes.d;
  }
};

// V entries of channels from c on: neighbours in NHWC, V times the same in NCHW.
template <int V, class A> __device__ inline void of_channels(const A* p, uint32_t c, bool last, A (&x)[V]) {
  if (last) return read_entries_of<V>(p + c, x);
  A one = p[c];
#pragma unroll
  for (int i = 0; i < V; ++i) x[i] = one;
}

// Numbers of the channels, [C] each.
template <class T> struct Channels {
  using A = real_t<T>;
  Numbers weight, bias, running_mean, running_var, dweight, dbias;
  A *mean, *rstd;
  const double *mean64, *variance64;  // of the batch
  const A* sums;                      // [pieces, 2, C]: of dy and of dy (x - mean)
  A *factor, *term,
      *slope;  // what elements are multiplied with, what is added, what (x - mean) is multiplied with in gradients
  int64_t c, count;
  uint32_t pieces;
  double momentum, eps;
  bool training;
};

template <class T> __global__ void __launch_bounds__(kThreads) channel_statistics(Channels<T> k) {
  using A = real_t<T>;
  int64_t c = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= k.c) return;
  double mean, variance;
  if (k.training) {
    mean = k.mean64[c], variance = k.variance64[c];
    auto update = [&](const Numbers& running, double value) {
      if (running) running.set(c, A((1 - k.momentum) * entry<double>(running, c) + k.momentum * value));
    };
    update(k.running_mean, mean);
    update(k.running_var, k.count > 1 ? variance * (double(k.count) / double(k.count - 1)) : double(NAN));
  } else {
    mean = entry<double>(k.running_mean, c), variance = entry<double>(k.running_var, c);
  }
  A rstd = A(1 / root(variance + k.eps));
  k.mean[c] = A(mean), k.rstd[c] = rstd;
  k.factor[c] = k.weight ? rstd * entry<A>(k.weight, c) : rstd;
  k.term[c] = k.bias ? entry<A>(k.bias, c) : A(0);
}

template <class T> struct Elements {
  const T *x, *dy;
  T* out;
  const real_t<T>*mean, *factor, *term, *slope;
  uint32_t vectors;
};

// out = (x - mean) factor + term, or in gradients (dy - term - (x - mean) slope) factor. Four vectors a thread.
template <class T, int V, bool kGradient>
__global__ void __launch_bounds__(kThreads) normalise(Elements<T> e, Layout s) {
  using A = real_t<T>;
  constexpr int kAtOnce = 4;
  uint32_t first = blockIdx.x * uint32_t(kThreads * kAtOnce) + threadIdx.x;
  Held<T, V> x[kAtOnce], dy[kGradient ? kAtOnce : 1];
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    uint32_t i = first + k * kThreads;
    if (i >= e.vectors) break;
    x[k] = *reinterpret_cast<const Held<T, V>*>(e.x + int64_t(i) * V);
    if constexpr (kGradient) dy[k] = *reinterpret_cast<const Held<T, V>*>(e.dy + int64_t(i) * V);
  }
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    uint32_t i = first + k * kThreads;
    if (i >= e.vectors) return;
    uint32_t c = s.channel<V>(i);
    A v[V], g[V], mean[V], factor[V], term[V], slope[V];
    x[k].widen_to(v);
    of_channels<V>(e.mean, c, s.last, mean);
    of_channels<V>(e.factor, c, s.last, factor);
    of_channels<V>(e.term, c, s.last, term);
    if constexpr (kGradient) {
      dy[k].widen_to(g);
      of_channels<V>(e.slope, c, s.last, slope);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      if constexpr (kGradient) v[j] = (g[j] - term[j] - (v[j] - mean[j]) * slope[j]) * factor[j];
      else v[j] = (v[j] - mean[j]) * factor[j] + term[j];
    }
    write_lanes<V>(e.out + int64_t(i) * V, v);
  }
}

// sums[piece][0, 1][C] of dy and dy (x - mean), NCHW: a block per channel and piece.
struct Pieces {
  uint32_t pieces, each;  // each: vectors of a channel (NCHW), pixels (NHWC)
  uint32_t wide, blocks_wide;
};
template <class T, int V>
__global__ void __launch_bounds__(kThreads) plane_sums(Elements<T> e, Layout s, Pieces p, real_t<T>* sums) {
  using A = real_t<T>;
  using G = RowThreads<kThreads>;
  uint32_t c = blockIdx.x / p.pieces, piece = blockIdx.x - c * p.pieces, all = uint32_t(s.n) * s.runs.d;
  uint32_t last = (piece + 1) * p.each < all ? (piece + 1) * p.each : all;
  A mean = e.mean[c];
  Total<A> of_dy, of_hat;
#pragma unroll 2
  for (uint32_t i = piece * p.each + threadIdx.x; i < last; i += kThreads) {
    uint32_t image = s.runs.quotient(i);
    int64_t at = (int64_t(image) * s.c + c) * s.space + int64_t(i - image * s.runs.d) * V;
    A v[V], g[V], a = 0, b = 0;
    read_lanes<V>(e.x + at, v);
    read_lanes<V>(e.dy + at, g);
#pragma unroll
    for (int j = 0; j < V; ++j) a += g[j], b += g[j] * (v[j] - mean);
    of_dy.add(a), of_hat.add(b);
  }
  const A sum = G::sum(of_dy.value()), sum_hat = G::sum(of_hat.value());
  if (threadIdx.x == 0) sums[(int64_t(piece) * 2) * s.c + c] = sum, sums[(int64_t(piece) * 2 + 1) * s.c + c] = sum_hat;
}

// The same for NHWC: of a block, `wide` threads lie along the channels, the others share the piece's pixels.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) pixel_sums(Elements<T> e, Layout s, Pieces p, real_t<T>* sums) {
  using A = real_t<T>;
  __shared__ A of_thread[kThreads][V + 1];
  uint32_t along = threadIdx.x & (p.wide - 1), of_pixel = threadIdx.x / p.wide, tall = kThreads / p.wide;
  uint32_t piece = blockIdx.x / p.blocks_wide, first_channel = (blockIdx.x - piece * p.blocks_wide) * p.wide * V,
           c = first_channel + along * V;
  uint32_t all = uint32_t(s.n * s.space), last = (piece + 1) * p.each < all ? (piece + 1) * p.each : all;
  constexpr int kPixels = 8;  // added in T's arithmetic type
  Total<A> sum[V], sum_hat[V];
  if (c < uint32_t(s.c)) {
    A mean[V];
    read_entries_of<V>(e.mean + c, mean);
    for (uint32_t i = piece * p.each + of_pixel; i < last;) {
      A a[V] = {}, b[V] = {};
#pragma unroll 4
      for (int k = 0; k < kPixels; ++k, i += tall) {
        if (i >= last) break;
        A v[V], g[V];
        read_lanes<V>(e.x + int64_t(i) * s.c + c, v);
        read_lanes<V>(e.dy + int64_t(i) * s.c + c, g);
#pragma unroll
        for (int j = 0; j < V; ++j) a[j] += g[j], b[j] += g[j] * (v[j] - mean[j]);
      }
#pragma unroll
      for (int j = 0; j < V; ++j) sum[j].add(a[j]), sum_hat[j].add(b[j]);
    }
  }
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    if (which > 0) __syncthreads();  // the first ones are read
#pragma unroll
    for (int j = 0; j < V; ++j) of_thread[threadIdx.x][j] = (which ? sum_hat : sum)[j].value();
    __syncthreads();
    for (uint32_t at = threadIdx.x; at < p.wide * V && first_channel + at < uint32_t(s.c); at += kThreads) {
      Total<A> x;
      for (uint32_t t = 0; t < tall; ++t) x.add(of_thread[t * p.wide + at / V][at % V]);
      sums[(int64_t(piece) * 2 + which) * s.c + first_channel + at] = x.value();
    }
  }
}

// A warp per channel.
template <class T> __global__ void __launch_bounds__(kThreads) gradient_factors(Channels<T> k) {
  using A = real_t<T>;
  RowGroup<kWarp> g{kWarp};
  int64_t c = g.row();
  Total<A> of_dy, of_hat;
  for (uint32_t p = uint32_t(g.lane()); c < k.c && p < k.pieces; p += kWarp)
    of_dy.add(k.sums[int64_t(p) * 2 * k.c + c]), of_hat.add(k.sums[(int64_t(p) * 2 + 1) * k.c + c]);
  const A sum = g.sum(of_dy.value()), sum_hat = g.sum(of_hat.value());
  if (c >= k.c || g.lane() != 0) return;
  const A rstd = k.rstd[c];
  if (k.dweight) k.dweight.set(c, sum_hat * rstd);
  if (k.dbias) k.dbias.set(c, sum);
  k.factor[c] = k.weight ? rstd * entry<A>(k.weight, c) : rstd;
  k.term[c] = k.training ? sum / A(k.count) : A(0);
  k.slope[c] = k.training ? sum_hat / A(k.count) * rstd * rstd : A(0);
}

// Calls f with the vector's length as a constant.
template <class T, class F, class... P> void with_vectors(const TensorView& x, const F& f, const P*... p) {
  constexpr int V = lanes_for<T>();
  Layout s(x, 1);
  if (aligned_rows<T, V>(s.last ? s.c : s.space, p...)) f(int_constant<V>());
  else f(int_constant<1>());
}

// Images in launches of fewer than 2^31 vectors.
template <class T, int V, bool kGradient>
void normalise_all(const char* op, Device device, Elements<T> e, const Layout& s) {
  int64_t image = s.c * s.space, at_once = INT32_MAX / (image / V);
  for (int64_t n = 0; n < s.n; n += at_once) {
    Elements<T> part = e;
    part.x += n * image, part.out += n * image, part.dy = e.dy ? e.dy + n * image : nullptr;
    part.vectors = uint32_t((s.n - n < at_once ? s.n - n : at_once) * (image / V));
    launch(op, device, blocks_for(part.vectors, 4), normalise<T, V, kGradient>, part, s);
  }
}

// out[C] = the reduction of x over all but its channels.
void reduce_to_channels(Reduction what, const TensorView& x, double* out, const double* center, double divisor) {
  Reduce r{};
  r.what = what, r.divisor = divisor;
  r.in = x;
  r.in.sizes[0] = x.sizes[1], r.in.strides[0] = x.strides[1], r.in.sizes[1] = x.sizes[0],
  r.in.strides[1] = x.strides[0];
  r.out = r.in;
  r.out.ndim = 1, r.out.dtype = kFloat64, r.out.strides[0] = 1, r.out.data = out;
  if (center) r.center = r.out, r.center.data = const_cast<double*>(center);
  reduce_kernel.find(x.device, r)(r);
}

void forward(const BatchNormForward& f) {
  as_float(f.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = real_t<T>;
    Layout shape(f.x, 1);
    if (shape.c == 0) return;
    size_t c = size_t(shape.c);
    Scratch scratch(f.x.device, c * (2 * sizeof(double) + 2 * sizeof(A)));
    Channels<T> k{};
    double* batch = scratch.as<double>();
    k.mean64 = batch, k.variance64 = batch + c, k.factor = reinterpret_cast<A*>(batch + 2 * c), k.term = k.factor + c;
    k.weight = f.weight, k.bias = f.bias, k.running_mean = f.running_mean, k.running_var = f.running_var;
    k.mean = f.mean.as<A>(), k.rstd = f.rstd.as<A>();
    k.c = shape.c, k.count = shape.n * shape.space, k.momentum = f.momentum, k.eps = f.eps, k.training = f.training;
    if (f.training) {
      reduce_to_channels(Reduction::Sum, f.x, batch, nullptr, double(k.count));
      reduce_to_channels(Reduction::SquareDeviation, f.x, batch + c, batch, double(k.count));
    }
    launch("batch_norm", f.x.device, blocks_for(k.c, 1), channel_statistics<T>, k);
    if (f.x.numel() == 0) return;
    Elements<T> e{f.x.as<const T>(), nullptr, f.y.as<T>(), k.mean, k.factor, k.term, nullptr, 0};
    with_vectors<T>(
        f.x, [&](auto v) { normalise_all<T, v(), false>("batch_norm", f.x.device, e, Layout(f.x, v())); }, e.x, e.out,
        e.mean, e.factor, e.term);
  });
}

void backward(const BatchNormBackward& g) {
  as_float(g.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = real_t<T>;
    Layout shape(g.x, 1);
    if (shape.c == 0) return;
    Channels<T> k{};
    k.weight = g.weight, k.dweight = g.dweight, k.dbias = g.dbias;
    k.mean = g.mean.as<A>(), k.rstd = g.rstd.as<A>(), k.c = shape.c, k.count = shape.n * shape.space,
    k.training = g.training;
    Scratch numbers(g.x.device, size_t(3 * shape.c) * sizeof(A));
    // The channels of the three begin at addresses for vectors where C is a multiple of one.
    k.factor = numbers.as<A>(), k.term = k.factor + shape.c, k.slope = k.term + shape.c;
    Elements<T> e{g.x.as<const T>(), g.dy.as<const T>(), g.dx.as<T>(), k.mean, k.factor, k.term, k.slope, 0};
    with_vectors<T>(
        g.x,
        [&](auto v) {
          constexpr int V = v();
          constexpr uint32_t kBlocks = 1056;  // enough for 132 multiprocessors
          Layout s(g.x, V);
          Pieces p{1, 0, 1, 1};
          uint32_t all = uint32_t(s.last ? s.n * s.space : s.n * (s.space / V)), runs = uint32_t(s.last ? s.c / V : 1);
          for (p.wide = kWarp;
               p.wide > 1 && (p.wide > runs || (p.wide > 8 && (runs + p.wide - 1) / p.wide * p.wide * 4 > runs * 5));)
            p.wide /= 2;
          p.blocks_wide = (runs + p.wide - 1) / p.wide;
          uint32_t blocks = s.last ? p.blocks_wide : uint32_t(s.c),
                   most = s.last ? all / (kThreads / p.wide * 16) : all / (kThreads * 4);
          p.pieces = (kBlocks + blocks - 1) / blocks;
          p.pieces = p.pieces < most ? p.pieces : most > 1 ? most : 1;
          p.each = (all + p.pieces - 1) / p.pieces;
          Scratch sums(g.x.device, size_t(2 * s.c) * p.pieces * sizeof(A));
          if (s.last)
            launch("batch_norm_backward", g.x.device, blocks * p.pieces, pixel_sums<T, V>, e, s, p, sums.as<A>());
          else launch("batch_norm_backward", g.x.device, blocks * p.pieces, plane_sums<T, V>, e, s, p, sums.as<A>());
          k.sums = sums.as<const A>(), k.pieces = p.pieces;
          launch("batch_norm_backward", g.x.device, unsigned((s.c + kThreads / kWarp - 1) / (kThreads / kWarp)),
                 gradient_factors<T>, k);
          if (g.x.numel() > 0) normalise_all<T, V, true>("batch_norm_backward", g.x.device, e, s);
        },
        e.x, e.dy, e.out, e.mean, e.factor, e.term, e.slope);
  });
}

// Pixels and vectors are counted in 31 bits.
bool countable(const TensorView& x) {
  return x.sizes[0] <= INT32_MAX && x.sizes[1] <= INT32_MAX &&
         (x.sizes[1] == 0 || x.numel() / x.sizes[1] <= INT32_MAX) &&
         (x.sizes[0] == 0 || x.numel() / x.sizes[0] <= INT32_MAX);
}

SF_KERNEL(batch_norm_forward, DeviceType::CUDA, "native", 0, forward,
          [](const BatchNormForward& f) { return countable(f.x); })
SF_KERNEL(batch_norm_backward, DeviceType::CUDA, "native", 0, backward,
          [](const BatchNormBackward& g) { return countable(g.x); })

}  // namespace
}  // namespace sf::cuda
