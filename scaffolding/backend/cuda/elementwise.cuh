// elementwise: out[i] = f(in[i]...) over one shape, any strides and dtypes; the kernel behind every pointwise op, copies
// and fills. f is plain data with a __device__ operator()(In...) -> Out.
#pragma once
#include <utility>

#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/vec.cuh"
#include "scaffolding/backend/cuda/walk.cuh"

namespace sf::cuda {

// V consecutive elements of operand k, or V times its one element.
template <class T, int V, int N> __device__ Vec<T, V> load(const Walk<N>& w, int k, uint32_t first) {
  const T* p = reinterpret_cast<const T*>(w.data[k]);
  if (w.strides[k][0] != 0) return *reinterpret_cast<const Vec<T, V>*>(p + first);
  Vec<T, V> x;
  for (int i = 0; i < V; ++i) x.v[i] = p[0];
  return x;
}

template <int V, class Out, class F, class... In> __device__ Vec<Out, V> apply(const F& f, const Vec<In, V>&... x) {
  Vec<Out, V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.v[i] = f(x.v[i]...);
  return y;
}

// Dense operands: a thread takes V neighbours, in one load per input and one store. Others, and the last few elements: one
// at a time, neighbouring threads taking neighbouring elements so that a warp's accesses share cache lines.
template <class F, class Out, class... In, size_t... k>
__device__ void elementwise_body(const Walk<1 + sizeof...(In)>& w, const F& f, std::index_sequence<k...>) {
  constexpr int V = lanes_for<Out, In...>();
  uint32_t block = blockIdx.x * uint32_t(kThreads * V), mine = block + threadIdx.x * V;
  if (w.vectors && mine + V <= w.n) {
    *reinterpret_cast<Vec<Out, V>*>(reinterpret_cast<Out*>(w.data[0]) + mine) = apply<V, Out>(f, load<In, V>(w, int(k) + 1, mine)...);
    return;
  }
#pragma unroll 1
  for (int j = 0; j < V; ++j) {
    uint32_t i = w.vectors ? mine + uint32_t(j) : block + uint32_t(j * kThreads) + threadIdx.x;
    if (i >= w.n) return;
    int64_t at[1 + sizeof...(In)];
    w.offsets(i, at);
    *reinterpret_cast<Out*>(w.data[0] + at[0]) = f(*reinterpret_cast<const In*>(w.data[k + 1] + at[k + 1])...);
  }
}

template <class F, class Out, class... In> __global__ void __launch_bounds__(kThreads) elementwise_kernel(Walk<1 + sizeof...(In)> w, F f) {
  elementwise_body<F, Out, In...>(w, f, std::make_index_sequence<sizeof...(In)>());
}

// All views have out's shape; their dtypes have the sizes of Out and In.
template <class Out, class... In, class F, class... Views> void elementwise(const char* op, const F& f, const TensorView& out, const Views&... in) {
  static_assert(sizeof...(In) == sizeof...(Views));
  constexpr int kOperands = 1 + sizeof...(In), V = lanes_for<Out, In...>();
  const size_t item[] = {sizeof(Out), sizeof(In)...};
  for_walks<kOperands>(cpu::StridedLoop{&out, &in...}, item, V,
                       [&](const Walk<kOperands>& w) { launch(op, out.device, blocks_for(w.n, V), elementwise_kernel<F, Out, In...>, w, f); });
}

}  // namespace sf::cuda
