// Kernels over rows of contiguous elements: a warp per short row, a block per long one. A row is read again for each step of a
// kernel: it is then in the cache of its multiprocessor, and device memory gives it once.
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

// f(first) for each run of V elements of a row that belongs to this thread; V divides cols.
template <int kGroup, int V, class F> __device__ inline void for_my_columns(int64_t cols, const F& f) {
  for (int64_t c = int64_t(RowThreads<kGroup>::lane()) * V; c < cols; c += int64_t(kGroup) * V) f(c);
}

template <int V, class T> __device__ inline void read_lanes(const T* p, real_t<T> (&x)[V]) {
  Vec<T, V> bits = *reinterpret_cast<const Vec<T, V>*>(p);
#pragma unroll
  for (int i = 0; i < V; ++i) x[i] = widen(bits.v[i]);
}
template <int V, class T> __device__ inline void write_lanes(T* p, const real_t<T> (&x)[V]) {
  Vec<T, V> bits;
#pragma unroll
  for (int i = 0; i < V; ++i) bits.v[i] = to_storage<T>(x[i]);
  *reinterpret_cast<Vec<T, V>*>(p) = bits;
}

// The largest x * scale of the thread's row, and the sum of exp(x * scale - top).
template <class A> struct RowExponentials { A top, total; };
template <int kGroup, int V, class T> __device__ inline RowExponentials<real_t<T>> row_exponentials(const T* x, int64_t cols, real_t<T> scale) {
  using A = real_t<T>;
  using G = RowThreads<kGroup>;
  A top = -A(INFINITY), total = 0, v[V];
  for_my_columns<kGroup, V>(cols, [&](int64_t c) {
    read_lanes<V>(x + c, v);
    for (int i = 0; i < V; ++i) top = v[i] * scale > top ? v[i] * scale : top;
  });
  top = G::max(top);
  for_my_columns<kGroup, V>(cols, [&](int64_t c) {
    read_lanes<V>(x + c, v);
    for (int i = 0; i < V; ++i) total += exp_of(v[i] * scale - top);
  });
  return {top, G::sum(total)};
}

// Whether rows of this many elements can be read in vectors of V from each of these pointers; null ones do not matter.
template <class T, int V, class... P> bool aligned_rows(int64_t cols, const P*... p) {
  return cols % V == 0 && ((reinterpret_cast<uintptr_t>(p) % (sizeof(T) * V) == 0) && ...);
}

// run(kernel launcher): calls f with the group's size and the vector's length as constants.
template <class T, class F> void choose_rows(int64_t rows, int64_t cols, bool vectors, const F& f) {
  constexpr int V = lanes_for<T>();
  auto with = [&](auto group, auto v) { f(group, v, unsigned((rows + kThreads / group() - 1) / (kThreads / group()))); };
  bool warps = cols <= 1024;
  if (warps && vectors) with(std::integral_constant<int, kWarp>(), std::integral_constant<int, V>());
  else if (warps) with(std::integral_constant<int, kWarp>(), std::integral_constant<int, 1>());
  else if (vectors) with(std::integral_constant<int, kThreads>(), std::integral_constant<int, V>());
  else with(std::integral_constant<int, kThreads>(), std::integral_constant<int, 1>());
}

}  // namespace sf::cuda
