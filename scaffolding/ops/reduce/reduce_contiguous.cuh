// Reductions of memory without gaps on CUDA: along it (runs) and across it (columns), in vectors of 16 bytes.
//
// A thread adds up a few vectors in the element's arithmetic type and takes the sum into float64: 16-bit and 32-bit
// floats would otherwise spend more on conversions to float64 than on memory. Where that sum may have left float32's
// range, the few elements are added again in float64. Which thread takes what depends on sizes and alignment alone, and
// few results are cut into pieces that a second kernel joins in their order: the same input gives the same bits.
#pragma once
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/reduce/reduce_terms.cuh"

namespace sf::cuda {

// Those worth kernels of their own; the others read one element at a time.
template <Reduction what, class T>
constexpr bool kHasVectors =
    std::is_same_v<T, bool> ? what == Reduction::Sum || what == Reduction::Any || what == Reduction::All
    : std::is_integral_v<T> ? std::is_same_v<T, int64_t>&& what == Reduction::Sum
                            : what == Reduction::Sum || what == Reduction::Max || what == Reduction::Min ||
                                  what == Reduction::AbsSum || what == Reduction::SquareSum ||
                                  what == Reduction::AbsMax || what == Reduction::SquareDeviation ||
                                  what == Reduction::ExpDeviation;

template <Reduction what, class T> struct Terms {
  using A = accumulator_t<what, T>;
  using C = std::conditional_t<std::is_integral_v<T>, A, real_t<T>>;  // of a few vectors
  using InC = Combine<what, C>;
  using InA = Combine<what, A>;
  C high, low;
  A center;

  __device__ explicit Terms(double c = 0) : high(C(c)), low(C(0)), center(A(c)) {
    // of an infinite center nothing is left
    if constexpr (std::is_floating_point_v<C>) low = high - high == C(0) ? C(c - double(high)) : C(0);
  }
  template <class X> __device__ C term(X x) const { return InC::term(C(x), high, low, 0); }
  template <class X> __device__ A exact_term(X x) const { return InA::term(A(x), center, A(0), 0); }

  // Whether a sum of terms may not be what float64 would have given: too large, or squares that vanished.
  __device__ static bool is_doubtful(C sum) {
    constexpr bool kSquares = what == Reduction::SquareSum || what == Reduction::SquareDeviation;
    if constexpr (sizeof(C) == sizeof(A) || InC::kMax || InC::kMin) return false;
    else if constexpr (kSquares) return !(sum >= 1e-30f && sum <= 3e38f);
    else if constexpr (std::is_same_v<T, Half> && what != Reduction::ExpDeviation) return false;
    else return !(sum >= -3e38f && sum <= 3e38f);
  }
  __device__ static A both(A a, A b) { return InA::both(a, b); }
};

// ---- along memory

// A result's elements: `count` runs of `length` neighbours, cut into `parts` of `part_length`.
// `width` threads share a part, side by side.
struct Runs {
  Walk<1> runs;
  uint32_t length, part_length, units;  // units: runs * parts
  Divider parts;
  uint32_t threads, width;  // of a result (of a piece of it, where there are several); of a part
};

template <Reduction what, class T, bool kBlock>
__global__ void __launch_bounds__(kThreads) reduce_runs(ReduceArgs r, Runs s, PreviousGrid previous) {
  using K = Terms<what, T>;
  using A = typename K::A;
  using C = typename K::C;
  constexpr int V = lanes_for<T>(), kAtOnce = 4;
  const uint32_t threads = kBlock ? uint32_t(kThreads) : s.threads;
  uint32_t lane = threadIdx.x & (threads - 1);
  uint32_t item = kBlock ? blockIdx.x / r.pieces : blockIdx.x * (kThreads / threads) + threadIdx.x / threads,
           piece = kBlock ? blockIdx.x % r.pieces : 0;
  bool mine = item < r.kept.n;  // others stay for the shuffles
  int64_t at[2] = {};
  if (mine) r.kept.offsets(item, at);
  previous.wait();
  char* to = r.kept.data[0] + at[0];
  const char* from = r.kept.data[1] + at[1];
  const K k(what == Reduction::SquareDeviation || what == Reduction::ExpDeviation ? mine ? center_of(r, to) : 0.0
                                                                                  : 0.0);
  A total = K::InA::nothing();

  uint32_t of_unit = lane / s.width, along = lane & (s.width - 1), step = s.width;
  uint32_t each = (s.units + r.pieces - 1) / r.pieces, last = (piece + 1) * each;
  last = !mine ? 0 : last < s.units ? last : s.units;
  for (uint32_t unit = piece * each + of_unit; unit < last; unit += threads / step) {
    uint32_t run = s.parts.quotient(unit), first = (unit - run * s.parts.d) * s.part_length;
    int64_t run_at[1];
    s.runs.offsets(run, run_at);
    const T* p = reinterpret_cast<const T*>(from + run_at[0]) + first;
    uint32_t n = s.length - first < s.part_length ? s.length - first : s.part_length;
    // Elements before the first whole vector and behind the last one are taken singly.
    uint32_t head = uint32_t(-reinterpret_cast<uintptr_t>(p) % (sizeof(T) * V) / sizeof(T));
    head = head < n ? head : n;
    uint32_t vectors = (n - head) / V, edge = n - vectors * V;
    const T* middle = p + head;
    for (uint32_t j = along; j < edge; j += step)
      total = K::both(total, k.exact_term(widen(p[j < head ? j : j + vectors * V])));
    // Vectors from the j-th on, `step` apart.
    auto add = [&](const auto& v, uint32_t j) {
      C t[V];
      bool is_first = true;
#pragma unroll
      for (const auto& bits : v) {
        Vec<T, V> x = bits;
#pragma unroll
        for (int i = 0; i < V; ++i) {
          C y = k.term(widen(x.v[i]));
          t[i] = is_first ? y : K::InC::both(t[i], y);
        }
        is_first = false;
      }
#pragma unroll
      for (int half = V / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) t[i] = K::InC::both(t[i], t[i + half]);
      if (K::is_doubtful(t[0])) {
        // Read again: an index that is not a constant would put v into local memory.
#pragma unroll 1
        for (uint32_t i = 0; i < V * (sizeof(v) / sizeof(v[0])); ++i)
          total = K::both(total, k.exact_term(widen(middle[size_t(j + i / V * step) * V + i % V])));
      } else {
        total = K::both(total, A(t[0]));
      }
    };
    uint32_t j = along;
    for (; j + (kAtOnce - 1) * step < vectors; j += kAtOnce * step) {
      Vec<T, V> v[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) v[i] = *reinterpret_cast<const Vec<T, V>*>(middle + size_t(j + i * step) * V);
      add(v, j);
    }
    for (; j < vectors; j += step) {
      Vec<T, V> v[1] = {*reinterpret_cast<const Vec<T, V>*>(middle + size_t(j) * V)};
      add(v, j);
    }
  }
  RowGroup<kBlock ? kThreads : kWarp> group{threads};
  total = group.all(total, [](A a, A b) { return K::both(a, b); });
  if (mine && lane == 0) give(r, to, piece, total);
}

// ---- across memory

// Results side by side in memory as their elements are: `columns`, column_step bytes apart in out. kept of ReduceArgs
// are the other kept dimensions.
struct Columns {
  uint32_t columns;
  int64_t column_step;
  uint32_t wide, blocks_wide;  // threads of a block that lie side by side, V columns each; the others share the rows
  uint32_t piece_rows;
};

template <Reduction what, class T, int V>
__global__ void __launch_bounds__(kThreads) reduce_columns(ReduceArgs r, Columns s, PreviousGrid previous) {
  using K = Terms<what, T>;
  using A = typename K::A;
  using C = typename K::C;
  constexpr int kRows = 16, kAtOnce = 4;  // added in C; loaded before the first is used
  constexpr bool kCentered = what == Reduction::SquareDeviation || what == Reduction::ExpDeviation;
  __shared__ A sums[kThreads][V + 1];  // one more than a vector: neighbours in other banks
  uint32_t along = threadIdx.x & (s.wide - 1), of_row = threadIdx.x / s.wide, tall = kThreads / s.wide;
  uint32_t block = blockIdx.x / s.blocks_wide, first_column = (blockIdx.x - block * s.blocks_wide) * s.wide * V,
           column = first_column + along * V;
  uint32_t item = block / r.pieces, piece = block - item * r.pieces;
  int64_t at[2];
  r.kept.offsets(item, at);
  char* to = r.kept.data[0] + at[0];
  const char* from = r.kept.data[1] + at[1] + int64_t(column) * int64_t(sizeof(T));
  previous.wait();
  uint32_t last = (piece + 1) * s.piece_rows;
  last = last < r.reduced.n ? last : r.reduced.n;
  A total[V];
#pragma unroll
  for (int i = 0; i < V; ++i) total[i] = K::InA::nothing();
  if (column < s.columns) {
    K k[kCentered ? V : 1];
    if constexpr (kCentered)
      for (int i = 0; i < V; ++i) k[i] = K(center_of(r, to + (column + i) * s.column_step));
    bool one_step = r.reduced.ndim == 1;
    auto row = [&](uint32_t i) {
      int64_t row_at[1] = {int64_t(i) * r.reduced.strides[0][0]};
      if (!one_step) r.reduced.offsets(i, row_at);
      return from + row_at[0];
    };
    for (uint32_t first = piece * s.piece_rows + of_row; first < last; first += kRows * tall) {
      C t[V];
#pragma unroll
      for (int i = 0; i < V; ++i) t[i] = K::InC::nothing();
#pragma unroll 1
      for (uint32_t i = first; i < last && i - first < kRows * tall; i += kAtOnce * tall) {
        Vec<T, V> v[kAtOnce];
        if (i + (kAtOnce - 1) * tall < last) {
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) v[j] = *reinterpret_cast<const Vec<T, V>*>(row(i + j * tall));
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
            for (int c = 0; c < V; ++c) t[c] = K::InC::both(t[c], k[kCentered ? c : 0].term(widen(v[j].v[c])));
        } else {
#pragma unroll 1
          for (uint32_t j = i; j < last; j += tall) {
            Vec<T, V> x = *reinterpret_cast<const Vec<T, V>*>(row(j));
#pragma unroll
            for (int c = 0; c < V; ++c) t[c] = K::InC::both(t[c], k[kCentered ? c : 0].term(widen(x.v[c])));
          }
        }
      }
      bool doubtful = false;
#pragma unroll
      for (int c = 0; c < V; ++c) doubtful = doubtful || K::is_doubtful(t[c]);
      if (!doubtful) {
#pragma unroll
        for (int c = 0; c < V; ++c) total[c] = K::both(total[c], A(t[c]));
      } else {
#pragma unroll 1
        for (uint32_t i = first; i < last && i - first < kRows * tall; i += tall) {
          Vec<T, V> x = *reinterpret_cast<const Vec<T, V>*>(row(i));
#pragma unroll
          for (int c = 0; c < V; ++c) total[c] = K::both(total[c], k[kCentered ? c : 0].exact_term(widen(x.v[c])));
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < V; ++i) sums[threadIdx.x][i] = total[i];
  __syncthreads();
  for (uint32_t c = threadIdx.x; c < s.wide * V && first_column + c < s.columns; c += kThreads) {
    A x = sums[c / V][c % V];
    for (uint32_t i = 1; i < tall; ++i) x = K::both(x, sums[i * s.wide + c / V][c % V]);
    give(r, to + (first_column + c) * s.column_step, piece, x);
  }
}

// ---- pieces of results, a warp for each result

template <Reduction what, class A>
__global__ void __launch_bounds__(kThreads) join_pieces(ReduceArgs r, int64_t results, PreviousGrid previous) {
  RowGroup<kWarp> g{kWarp};
  int64_t i = g.row();
  previous.wait();
  A x = Combine<what, A>::nothing();
  if (i < results)
    for (uint32_t p = uint32_t(g.lane()); p < r.pieces; p += kWarp)
      x = Combine<what, A>::both(x, static_cast<const A*>(r.partial)[i * r.pieces + p]);
  x = g.all(x, [](A a, A b) { return Combine<what, A>::both(a, b); });
  if (i < results && g.lane() == 0) store(r, r.first_result + (i << r.log_item), x);
}

// Calls f(args) with room for pieces where there are some, and joins them.
template <Reduction what, class A, class F>
void in_pieces(Device device, ReduceArgs r, int64_t results, uint32_t pieces, const F& f) {
  r.pieces = pieces;
  if (pieces == 1) return f(r);
  Scratch partial(device, size_t(results) * pieces * sizeof(A));
  r.partial = partial.as<void>();
  f(r);
  launch("reduce", device, unsigned((results + kThreads / kWarp - 1) / (kThreads / kWarp)), join_pieces<what, A>, r,
         results);
}

// Blocks that keep a GPU of 132 multiprocessors busy.
inline constexpr uint32_t kEnoughBlocks = 1056;
inline uint32_t at_least(uint32_t n, uint64_t wanted) {  // the power of two from n on
  while (n < wanted) n *= 2;
  return n;
}

// Whether f was reduced here: where neighbours in memory belong to one result, or to neighbouring ones.
template <Reduction what, class T> bool reduce_contiguous(Device device, const ReduceArgs& r) {
  using A = accumulator_t<what, T>;
  constexpr uint32_t V = uint32_t(lanes_for<T>());
  // Results of one call lie together, so that what pieces of them gave does too.
  if (r.reduced.ndim > 0 && r.reduced.strides[0][0] == int64_t(sizeof(T)) && r.reduced.n >= 2 * V) {
    Runs s{without(r.reduced, 0), r.reduced.sizes[0].d, 0, 0, Divider(1), 0, 0};
    uint64_t vectors_of_run = (s.length + V - 1) / V, vectors = vectors_of_run * s.runs.n;
    bool block = vectors > 1024 || (vectors >= 256 && r.kept.n < 1024);
    s.threads = block ? uint32_t(kThreads) : at_least(1, vectors < 4 ? vectors : 4);
    while (!block && s.threads < kWarp && s.threads < vectors &&
           (s.threads * 8 < vectors || r.kept.n * s.threads < (1u << 17)))
      s.threads *= 2;
    s.width = at_least(1, (vectors_of_run + 3) / 4 < 4 ? 4 : (vectors_of_run + 3) / 4);
    s.width = s.width < s.threads ? s.width : s.threads;
    // Pieces of at least 2048 vectors, 32 KiB.
    uint64_t wanted = block ? (kEnoughBlocks + r.kept.n - 1) / r.kept.n : 1, most = vectors / 2048;
    uint32_t pieces = uint32_t(wanted < most ? wanted : most > 1 ? most : 1);
    // A run is a unit of work, unless pieces are smaller; units of a block that has few are shared by all its threads.
    uint64_t part = pieces > s.runs.n ? (s.length + pieces / s.runs.n) / (pieces / s.runs.n + 1) : s.length;
    s.part_length = uint32_t(part < s.length ? (part + 1023) / 1024 * 1024 : s.length);
    s.part_length = s.part_length < s.length ? s.part_length : s.length;
    uint32_t parts = (s.length + s.part_length - 1) / s.part_length;
    s.parts = Divider(parts);
    s.units = parts * s.runs.n;
    pieces = pieces < s.units ? pieces : s.units;
    in_pieces<what, A>(device, r, r.kept.n, pieces, [&](const ReduceArgs& a) {
      if (block) launch("reduce", device, a.kept.n * a.pieces, reduce_runs<what, T, true>, a, s);
      else
        launch("reduce", device, unsigned((uint64_t(a.kept.n) * s.threads + kThreads - 1) / kThreads),
               reduce_runs<what, T, false>, a, s);
    });
    return true;
  }
  int dim = -1;
  for (int d = 0; d < r.kept.ndim; ++d)
    if (r.kept.strides[1][d] == int64_t(sizeof(T)) && r.kept.sizes[d].d > 1) dim = d;
  if (dim < 0 || r.reduced.n < 2 || uint64_t(r.kept.sizes[dim].d) * r.reduced.n < kThreads * V) return false;
  Columns s{};
  s.columns = r.kept.sizes[dim].d, s.column_step = r.kept.strides[0][dim];
  ReduceArgs rest = r;
  rest.kept = without(r.kept, dim);
  auto whole = [](int64_t n) { return n % int64_t(sizeof(T) * V) == 0; };
  bool vectors = s.columns % V == 0 && whole(int64_t(reinterpret_cast<uintptr_t>(r.kept.data[1])));
  for (int d = 0; d < rest.kept.ndim; ++d) vectors = vectors && whole(rest.kept.strides[1][d]);
  for (int d = 0; d < r.reduced.ndim; ++d) vectors = vectors && whole(r.reduced.strides[0][d]);
  // Threads side by side for all columns, as long as each has 16 rows to add up;
  // then less where a quarter of them would have no column.
  uint32_t lanes = vectors ? V : 1, runs = (s.columns + lanes - 1) / lanes,
           tallest = at_least(1, (r.reduced.n + 31) / 32);
  s.wide = uint32_t(kThreads) / (tallest < 8 ? tallest : 8);
  while (s.wide > runs && s.wide > 1) s.wide /= 2;
  while (s.wide > 8 && uint64_t((runs + s.wide - 1) / s.wide) * s.wide * 4 > uint64_t(runs) * 5) s.wide /= 2;
  s.blocks_wide = (runs + s.wide - 1) / s.wide;
  uint64_t blocks = uint64_t(s.blocks_wide) * rest.kept.n, tall = kThreads / s.wide;
  uint64_t wanted = (kEnoughBlocks + blocks - 1) / blocks, most = r.reduced.n / (tall * 16);
  uint32_t pieces = uint32_t(wanted < most ? wanted : most > 1 ? most : 1);
  s.piece_rows = (r.reduced.n + pieces - 1) / pieces;
  pieces = (r.reduced.n + s.piece_rows - 1) / s.piece_rows;
  if (blocks * pieces > INT32_MAX) return false;
  in_pieces<what, A>(device, rest, r.kept.n, pieces, [&](const ReduceArgs& a) {
    unsigned grid = unsigned(blocks * a.pieces);
    if (vectors) launch("reduce", device, grid, reduce_columns<what, T, int(V)>, a, s);
    else launch("reduce", device, grid, reduce_columns<what, T, 1>, a, s);
  });
  return true;
}

}  // namespace sf::cuda
