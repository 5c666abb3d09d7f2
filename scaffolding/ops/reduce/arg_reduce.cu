// Where the extremum is, on CUDA: some lanes or a block per result whose elements lie side by side, a thread per result
// where the results do. Few results are cut into pieces that a second kernel joins. Of equals the first wins,
// whoever found it.
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/reduce/kernel.h"
#include "scaffolding/ops/reduce/reduce_terms.cuh"

namespace sf::cuda {
namespace {

template <class A> __device__ inline bool is_nan(A x) {
  if constexpr (std::is_integral_v<A>) return false;
  else return x != x;
}

template <class A> struct Best {
  A x;
  int64_t i;  // -1: nothing yet
};
// Whether (x, i) comes before (y, j): the first NaN, else the largest (smallest), the first of equals.
template <class A> __device__ inline bool better(const Best<A>& a, const Best<A>& b, bool largest) {
  if (a.i < 0 || b.i < 0) return b.i < 0 && a.i >= 0;
  bool a_nan = is_nan(a.x), b_nan = is_nan(b.x);
  if (a_nan || b_nan) return a_nan && (!b_nan || a.i < b.i);
  if (a.x == b.x) return a.i < b.i;
  return (a.x > b.x) == largest;
}
// What of V elements comes first, without its place.
template <bool kLargest, class A, int V> __device__ inline A first_of(const A (&x)[V]) {
  A y = x[0];
#pragma unroll
  for (int i = 1; i < V; ++i) y = kLargest ? larger(y, x[i]) : smaller(y, x[i]);
  return y;
}
// Takes (x, i) if it comes before: for an element behind all that `best` has seen.
template <class A> __device__ inline void see(Best<A>& best, A x, int64_t i, bool largest) {
  bool wins = largest ? x > best.x : x < best.x;
  if (best.i < 0 || (!is_nan(best.x) && (wins || is_nan(x)))) best = {x, i};
}
template <class A> __device__ inline Best<A> shuffled(const Best<A>& b, unsigned with) {
  return {A(__shfl_xor_sync(~0u, b.x, int(with))), __shfl_xor_sync(~0u, b.i, int(with))};
}

struct ArgArgs {
  Walk<3> kept;  // indices, in, values (indices again where nobody asks for them)
  int64_t n, step;
  bool largest, values;
  uint32_t threads;  // of a result: 1, lanes of a warp, or a block
  uint32_t pieces;
  void* partial;  // Best[results, pieces]
};

template <class T, class A> __device__ inline void store(const ArgArgs& r, const int64_t (&at)[3], const Best<A>& b) {
  *reinterpret_cast<int64_t*>(r.kept.data[0] + at[0]) = b.i;
  if (r.values)
    *reinterpret_cast<T*>(r.kept.data[2] + at[2]) = *reinterpret_cast<const T*>(r.kept.data[1] + at[1] + b.i * r.step);
}

// The best of the row's threads, in the first of them.
template <class A> __device__ inline Best<A> best_of(Best<A> b, uint32_t threads, bool largest) {
  for (unsigned with = (threads < kWarp ? threads : unsigned(kWarp)) / 2; with > 0; with /= 2) {
    Best<A> other = shuffled(b, with);
    if (better(other, b, largest)) b = other;
  }
  if (threads > kWarp) {
    __shared__ Best<A> of_warp[kThreads / kWarp];
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = b;
    __syncthreads();
    b = of_warp[0];
    for (int w = 1; w < kThreads / kWarp; ++w)
      if (better(of_warp[w], b, largest)) b = of_warp[w];
  }
  return b;
}

template <class T> __global__ void __launch_bounds__(kThreads) arg_reduce_rows(ArgArgs r) {
  using A = decltype(widen(T()));
  constexpr int V = lanes_for<T>(), kAtOnce = 4;
  uint32_t lane = threadIdx.x & (r.threads - 1), rows = kThreads / r.threads, groups = (r.kept.n + rows - 1) / rows;
  uint32_t piece = blockIdx.x / groups, item = (blockIdx.x - piece * groups) * rows + threadIdx.x / r.threads;
  int64_t each = (r.n + r.pieces - 1) / r.pieces, first = piece * each, last = first + each < r.n ? first + each : r.n;
  bool mine = item < r.kept.n;  // others stay for the shuffles
  if (!mine) last = first;
  int64_t at[3] = {};
  if (mine) r.kept.offsets(item, at);
  const char* from = r.kept.data[1] + at[1];
  Best<A> best{A(0), -1};
  if (r.step == int64_t(sizeof(T)) && r.threads > 1) {
    // Elements before the first whole vector and behind the last one are taken singly, in the order of their places.
    const T* p = reinterpret_cast<const T*>(from);
    int64_t head = int64_t(-reinterpret_cast<uintptr_t>(p + first) % (sizeof(T) * V) / sizeof(T));
    int64_t begin = first + head < last ? first + head : last, vectors = (last - begin) / V, end = begin + vectors * V;
    for (int64_t i = first + lane; i < begin; i += r.threads) see(best, A(widen(p[i])), i, r.largest);
    // Only a vector whose first is better is looked at element by element, which is seldom.
    auto look = [&](auto largest, const Vec<T, V>& v, int64_t place) {
      A x[V];
#pragma unroll
      for (int i = 0; i < V; ++i) x[i] = widen(v.v[i]);
      A y = first_of<largest()>(x);
      if (best.i < 0 || (!is_nan(best.x) && ((largest() ? y > best.x : y < best.x) || is_nan(y))))
        for (int i = V - 1; i >= 0; --i)
          if (x[i] == y || (is_nan(x[i]) && is_nan(y))) best = {y, place + i};
    };
    auto all = [&](auto largest) {
      int64_t j = lane;
      for (; j + (kAtOnce - 1) * int64_t(r.threads) < vectors; j += kAtOnce * int64_t(r.threads)) {
        Vec<T, V> v[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
          v[k] = *reinterpret_cast<const Vec<T, V>*>(p + begin + (j + k * int64_t(r.threads)) * V);
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) look(largest, v[k], begin + (j + k * int64_t(r.threads)) * V);
      }
      for (; j < vectors; j += r.threads) {
        Vec<T, V> v = *reinterpret_cast<const Vec<T, V>*>(p + begin + j * V);
        look(largest, v, begin + j * V);
      }
    };
    r.largest ? all(std::true_type()) : all(std::false_type());
    for (int64_t i = end + lane; i < last; i += r.threads) see(best, A(widen(p[i])), i, r.largest);
  } else {
    const char* p = from + (first + lane) * r.step;
    int64_t step = r.step * r.threads;
#pragma unroll 4
    for (int64_t i = first + lane; i < last; i += r.threads, p += step)
      see(best, A(widen(*reinterpret_cast<const T*>(p))), i, r.largest);
  }
  best = best_of(best, r.threads, r.largest);
  if (!mine || lane != 0) return;
  if (r.partial) static_cast<Best<A>*>(r.partial)[size_t(item) * r.pieces + piece] = best;
  else store<T>(r, at, best);
}

// A warp per result.
template <class T> __global__ void __launch_bounds__(kThreads) join_arg_pieces(ArgArgs r) {
  using A = decltype(widen(T()));
  uint32_t item = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
  bool mine = item < r.kept.n;
  Best<A> best{A(0), -1};
  for (uint32_t p = threadIdx.x % kWarp; mine && p < r.pieces; p += kWarp) {
    Best<A> other = static_cast<const Best<A>*>(r.partial)[size_t(item) * r.pieces + p];
    if (better(other, best, r.largest)) best = other;
  }
  best = best_of(best, kWarp, r.largest);
  if (!mine || threadIdx.x % kWarp != 0) return;
  int64_t at[3];
  r.kept.offsets(item, at);
  store<T>(r, at, best);
}

template <class T> void arg_reduce_of(Device device, ArgArgs r) {
  using A = decltype(widen(T()));
  constexpr int64_t kEnoughThreads = 1 << 17;
  bool side_by_side =
      r.step != int64_t(sizeof(T)) && r.kept.strides[1][0] == int64_t(sizeof(T)) && r.kept.sizes[0].d >= kWarp;
  if (r.n <= 8 || side_by_side) r.threads = 1;
  else if (r.n > 4096 || (r.n > 512 && r.kept.n < 1024)) r.threads = kThreads;
  else
    for (r.threads = 4; r.threads < kWarp && (r.threads * 64 < r.n || r.kept.n * int64_t(r.threads) < kEnoughThreads);)
      r.threads *= 2;
  uint32_t rows = kThreads / r.threads, groups = (r.kept.n + rows - 1) / rows;
  // Pieces in which each thread sees at least 32 elements.
  int64_t wanted = (1056 + groups - 1) / groups, most = r.n / (int64_t(r.threads) * 32);
  r.pieces = uint32_t(wanted < most ? wanted : most > 1 ? most : 1);
  Scratch partial(device, r.pieces > 1 ? size_t(r.kept.n) * r.pieces * sizeof(Best<A>) : 0);
  r.partial = r.pieces > 1 ? partial.as<void>() : nullptr;
  launch("arg_reduce", device, groups * r.pieces, arg_reduce_rows<T>, r);
  if (r.pieces > 1)
    launch("arg_reduce", device, unsigned((r.kept.n + kThreads / kWarp - 1) / (kThreads / kWarp)), join_arg_pieces<T>,
           r);
}

void arg_reduce(const ArgReduce& a) {
  TensorView kept = a.in;
  kept.ndim = a.indices.ndim;
  int64_t n = a.in.sizes[a.in.ndim - 1], step = a.in.strides[a.in.ndim - 1];
  visit_dtype(a.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, Float8E4M3> && !std::is_same_v<T, Float8E5M2>) {
      const size_t item[] = {sizeof(int64_t), sizeof(T), sizeof(T)};
      cpu::StridedLoop loop{&a.indices, &kept, a.values.defined() ? &a.values : &a.indices};
      for_walks<3>(loop, item, 1, [&](const Walk<3>& w) {
        arg_reduce_of<T>(a.in.device,
                         ArgArgs{w, n, step * int64_t(sizeof(T)), a.largest, a.values.defined(), 1, 1, nullptr});
      });
    }
  });
}

SF_KERNEL(arg_reduce_kernel, DeviceType::CUDA, "native", 0, arg_reduce, nullptr)

}  // namespace
}  // namespace sf::cuda
