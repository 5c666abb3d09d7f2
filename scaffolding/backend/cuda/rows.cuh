// Kernels over rows of contiguous elements: some lanes of a warp per short row, a block per long one. A thread keeps
// its part of the row in registers, so that device memory gives it once; only rows of more than 32 KiB are read again,
// from the cache.
#pragma once
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/math.cuh"
#include "scaffolding/backend/cuda/real.cuh"

namespace sf::cuda {

inline constexpr int kWarp = 32;

// The same result in each thread of the warp, in one order of additions.
template <class A, class F> __device__ inline A warp_all(A x, const F& combine) {
  for (int with = kWarp / 2; with > 0; with /= 2) x = combine(x, __shfl_xor_sync(~0u, x, with));
  return x;
}

// The threads of one row. All of them call sum() and max() together.
template <int kGroup> struct RowThreads {
  static_assert(kGroup == kWarp || kGroup == kThreads);
  static constexpr int kRows = kThreads / kGroup;  // of a block

  __device__ static int64_t row() { return int64_t(blockIdx.x) * kRows + threadIdx.x / kGroup; }
  __device__ static int lane() { return int(threadIdx.x) % kGroup; }

  template <class A, class F> __device__ static A all(A x, const F& combine) {
    x = warp_all(x, combine);
    if constexpr (kGroup == kThreads) {
      __shared__ A of_warp[kThreads / kWarp];
      __syncthreads();  // the last call's are read
      if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
      __syncthreads();
      x = of_warp[0];
      for (int w = 1; w < kThreads / kWarp; ++w) x = combine(x, of_warp[w]);
    }
    return x;
  }
  template <class A> __device__ static A sum(A x) {
    return all(x, [](A a, A b) { return a + b; });
  }
  template <class A> __device__ static A max(A x) {
    return all(x, [](A a, A b) { return a > b ? a : b; });
  }
};

// The threads of one row as a kernel is told at run time: a block (kGroup = kThreads), or `width` neighbouring lanes of
// a warp, a power of two (kGroup = kWarp). Short rows take few lanes, so that what a row costs besides its elements is
// shared by many elements of each lane.
template <int kGroup> struct RowGroup {
  static_assert(kGroup == kWarp || kGroup == kThreads);
  unsigned width;

  __device__ int64_t row() const {
    unsigned log_width = unsigned(__popc(width - 1));
    if constexpr (kGroup == kThreads) return blockIdx.x;
    else return int64_t(blockIdx.x) * (kThreads >> log_width) + (threadIdx.x >> log_width);
  }
  __device__ int lane() const { return int(kGroup == kThreads ? threadIdx.x : threadIdx.x & (width - 1)); }
  __device__ int step() const { return int(kGroup == kThreads ? unsigned(kThreads) : width); }
  // Of all the row's threads, in one order; lanes of a warp come together even where some have no row of their own.
  template <class A, class F> __device__ A all(A x, const F& combine) const {
    if constexpr (kGroup == kThreads) {
      return RowThreads<kThreads>::all(x, combine);
    } else {
      for (unsigned with = width / 2; with > 0; with /= 2) x = combine(x, __shfl_xor_sync(~0u, x, int(with)));
      return x;
    }
  }
  template <class A> __device__ A sum(A x) const {
    return all(x, [](A a, A b) { return a + b; });
  }
  template <class A> __device__ A max(A x) const {
    return all(x, [](A a, A b) { return larger_of(a, b); });
  }
};

// For kernels whose threads keep rows: two blocks on each multiprocessor, so that one loads while the other computes.
#define SF_ROW_KERNEL __global__ void __launch_bounds__(kThreads, 2)

// f(first, k) for each run of V elements of a row that belongs to this thread; V divides cols. K > 0: there are at most
// K of them, and k is a constant in the unrolled code, so that arrays with an entry for each stay in registers; first
// is an int then. K = 0: any number, k is 0.
template <int V, int K, int kGroup, class F>
__device__ inline void for_my_columns(const RowGroup<kGroup>& g, int64_t cols, const F& f) {
  if constexpr (K > 0) {
    int n = int(cols), c = g.lane() * V, step = g.step() * V, first = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (first >= n) break;  // for all threads of the row at once
      if (c < n) f(c, k);
      c += step, first += step;
    }
  } else {
    for (int64_t c = int64_t(g.lane()) * V; c < cols; c += int64_t(g.step()) * V) f(c, 0);
  }
}

// The same for all K runs up to the row's end, of all lanes: f(first, k, whether the run is in the row). No branch
// around what lanes do together.
template <int V, int K, int kGroup, class F>
__device__ inline void for_all_columns(const RowGroup<kGroup>& g, int64_t cols, const F& f) {
  if constexpr (K > 0) {
    int n = int(cols), c = g.lane() * V, step = g.step() * V, first = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (first >= n) break;
      f(c, k, c < n);
      c += step, first += step;
    }
  } else {
    for (int64_t c = int64_t(g.lane()) * V; c < cols; c += int64_t(g.step()) * V) f(c, 0, true);
  }
}

template <int V, class T> __device__ inline void widen_lanes(const Vec<T, V>& bits, real_t<T> (&x)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) x[i] = widen(bits.v[i]);
}
// A vector while it waits in registers. Elements of 16 bits stay in pairs:
// nvcc gives each member of a Vec a register of its own.
template <class T, int V, bool kPairs = (sizeof(T) == 2 && V % 2 == 0)> struct Held {
  Vec<T, V> bits;
  __device__ void widen_to(real_t<T> (&x)[V]) const { widen_lanes<V>(bits, x); }
};
template <class T, int V> struct alignas(sizeof(T) * V) Held<T, V, true> {
  uint32_t pairs[V / 2];
  __device__ void widen_to(float (&x)[V]) const {
#pragma unroll
    for (int i = 0; i < V; i += 2) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        x[i] = __uint_as_float(pairs[i / 2] << 16), x[i + 1] = __uint_as_float(pairs[i / 2] & 0xffff0000u);
      } else {
        x[i] = widen(T{uint16_t(pairs[i / 2])}), x[i + 1] = widen(T{uint16_t(pairs[i / 2] >> 16)});
      }
    }
  }
};

// x rounded to T, as it is stored.
template <class T, int V> __device__ inline Held<T, V> hold(const real_t<T> (&x)[V]) {
  Held<T, V> held;
  if constexpr (sizeof(T) == 2 && V % 2 == 0) {
#pragma unroll
    for (int i = 0; i < V; i += 2)
      held.pairs[i / 2] = uint32_t(to_storage<T>(x[i]).bits) | uint32_t(to_storage<T>(x[i + 1]).bits) << 16;
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) held.bits.v[i] = to_storage<T>(x[i]);
  }
  return held;
}

template <int V, class T> __device__ inline void read_lanes(const T* p, real_t<T> (&x)[V]) {
  // a copy: of a reference, nvcc loads the elements one by one
  Held<T, V> bits = *reinterpret_cast<const Held<T, V>*>(p);
  bits.widen_to(x);
}
template <int V, class T> __device__ inline void write_lanes(T* p, const real_t<T> (&x)[V]) {
  Vec<T, V> bits;
#pragma unroll
  for (int i = 0; i < V; ++i) bits.v[i] = to_storage<T>(x[i]);
  *reinterpret_cast<Vec<T, V>*>(p) = bits;
}

// A thread's runs of one row: kept in registers as they are stored (K > 0; all loads are issued at once),
// or read again each time (K = 0).
template <class T, int V, int K> struct RowRuns {
  const T* row;
  Held<T, V> kept[K > 0 ? K : 1];

  template <int kGroup> __device__ RowRuns(const RowGroup<kGroup>& g, const T* from, int64_t cols) : row(from) {
    if constexpr (K > 0)
      for_my_columns<V, K>(g, cols, [&](auto c, int k) { kept[k] = *reinterpret_cast<const Held<T, V>*>(from + c); });
  }
  template <class Column> __device__ void get(Column c, int k, real_t<T> (&x)[V]) const {
    if constexpr (K > 0) kept[k].widen_to(x);
    else read_lanes<V>(row + c, x);
  }
};

// The same with elements in their arithmetic type, for kernels that look at them several times: twice the registers for
// 16 bits, fewer instructions. Lanes behind the row's end hold zeros.
template <class T, int V, int K> struct WideRuns {
  const T* row;
  real_t<T> kept[K > 0 ? K : 1][V];

  template <int kGroup> __device__ WideRuns(const RowGroup<kGroup>& g, const T* from, int64_t cols) : row(from) {
    if constexpr (K > 0) {
      Held<T, V> bits[K];
      for_all_columns<V, K>(g, cols, [&](auto c, int k, bool inside) {
        bits[k] = {};
        if (inside) bits[k] = *reinterpret_cast<const Held<T, V>*>(from + c);
      });
      for_all_columns<V, K>(g, cols, [&](auto, int k, bool) { bits[k].widen_to(kept[k]); });
    }
  }
  template <class Column> __device__ void get(Column c, int k, real_t<T> (&x)[V]) const {
    if constexpr (K > 0) {
#pragma unroll
      for (int i = 0; i < V; ++i) x[i] = kept[k][i];
    } else {
      read_lanes<V>(row + c, x);
    }
  }
};

// V entries of n from the i-th on; where V > 1 their address is a multiple of 16 bytes (vector_entries). T: the dtype
// that is asked for first.
template <int V, class S, class A> __device__ inline void read_entries_of(const S* p, A (&x)[V]) {
  constexpr int kAtOnce = V * sizeof(S) > 16 ? int(16 / sizeof(S)) : V;
#pragma unroll
  for (int i = 0; i < V; i += kAtOnce) {
    real_t<S> part[kAtOnce];
    read_lanes<kAtOnce>(p + i, part);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) x[i + j] = A(part[j]);
  }
}
template <class T, int V, class A, class At> __device__ inline void read_entries(const Numbers& n, At i, A (&x)[V]) {
  if (n.dtype == dtype_of<T>::value) return read_entries_of<V>(static_cast<const T*>(n.data) + i, x);
  switch (n.dtype) {
    case kFloat32: return read_entries_of<V>(static_cast<const float*>(n.data) + i, x);
    case kBFloat16: return read_entries_of<V>(static_cast<const BFloat16*>(n.data) + i, x);
    case kFloat16: return read_entries_of<V>(static_cast<const Half*>(n.data) + i, x);
    default: return read_entries_of<V>(static_cast<const double*>(n.data) + i, x);
  }
}
inline bool vector_entries(const Numbers& n, int64_t stride = 0) {
  return reinterpret_cast<uintptr_t>(n.data) % 16 == 0 && stride * int64_t(size_of(n.dtype)) % 16 == 0;
}

// The largest x of the thread's row and the sum of exp(x - top), in units of Exponential<T>::unit(1),
// reading device memory once.
template <class A> struct RowExponentials { A top, total; };
template <int V, class T, int kGroup>
__device__ inline RowExponentials<real_t<T>> row_exponentials(const RowGroup<kGroup>& g, const T* x, int64_t cols,
                                                              real_t<T> unit) {
  using A = real_t<T>;
  using E = Exponential<T>;
  // Four runs at a time: as many loads in flight, and one more exponential for the change of `top` among them.
  constexpr int kAtOnce = 4;
  A top = -A(INFINITY), total = 0;
  auto add = [&](const auto& v) {
    A highest = top;
    for (auto& run : v)
#pragma unroll
      for (int i = 0; i < V; ++i) highest = larger_of(highest, run[i]);
    A shift = highest == -A(INFINITY) ? A(0) : highest;  // so far -inf only: their exponentials are 0
    total *= E::of(top - shift);
    top = highest;
    for (auto& run : v)
#pragma unroll
      for (int i = 0; i < V; ++i) total += E::of(run[i] - shift);
  };
  int64_t step = int64_t(g.step()) * V, c = int64_t(g.lane()) * V;
  for (; c + (kAtOnce - 1) * step < cols; c += kAtOnce * step) {
    A v[kAtOnce][V];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      read_lanes<V>(x + c + k * step, v[k]);
#pragma unroll
      for (int i = 0; i < V; ++i) v[k][i] *= unit;
    }
    add(v);
  }
  for (; c < cols; c += step) {
    A v[1][V];
    read_lanes<V>(x + c, v[0]);
#pragma unroll
    for (int i = 0; i < V; ++i) v[0][i] *= unit;
    add(v);
  }
  A highest = g.max(top);
  return {highest, g.sum(total * (top == highest ? A(1) : E::of(top - highest)))};
}

// Whether rows of this many elements can be read in vectors of V from each of these pointers; null ones do not matter.
template <class T, int V, class... P> bool aligned_rows(int64_t cols, const P*... p) {
  return cols % V == 0 && ((reinterpret_cast<uintptr_t>(p) % (sizeof(T) * V) == 0) && ...);
}

template <int n> using int_constant = std::integral_constant<int, n>;

// Calls f(group, V, K, blocks, width) with the first three as constants: RowGroup's kGroup, the vector's length, and
// how many runs a thread keeps (0: reads again). By the sizes alone.
template <class T, class F> void choose_rows(int64_t rows, int64_t cols, bool vectors, const F& f) {
  constexpr int V = lanes_for<T>(), K = 8;
  auto warps = [&](auto v, auto k, unsigned width) {
    f(int_constant<kWarp>(), v, k, unsigned((rows * width + kThreads - 1) / kThreads), width);
  };
  int64_t runs = cols / V;
  if (!vectors) {
    if (cols <= 1024) warps(int_constant<1>(), int_constant<0>(), kWarp);
    else f(int_constant<kThreads>(), int_constant<1>(), int_constant<0>(), unsigned(rows), unsigned(kThreads));
  } else if (runs <= K * kWarp) {
    // As few lanes as can keep the row; more where that is fewer threads than a GPU of 132 multiprocessors wants.
    constexpr int64_t kWanted = int64_t(1) << 17;
    unsigned width = 1;
    while (width < kWarp && width < runs && (width < 4 || width * K < runs || rows * width < kWanted)) width *= 2;
    warps(int_constant<V>(), int_constant<K>(), width);
  } else if (runs <= K * kThreads) {
    f(int_constant<kThreads>(), int_constant<V>(), int_constant<K>(), unsigned(rows), unsigned(kThreads));
  } else {
    f(int_constant<kThreads>(), int_constant<V>(), int_constant<0>(), unsigned(rows), unsigned(kThreads));
  }
}

}  // namespace sf::cuda
