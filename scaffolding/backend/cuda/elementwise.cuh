// elementwise: out[i] = f(in[i]...) over one shape, any strides and dtypes; the kernel behind every pointwise op,
// copies and fills. f is plain data with a __device__ operator()(In...) -> Out.
#pragma once
#include <utility>

#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/vec.cuh"
#include "scaffolding/backend/cuda/walk.cuh"

namespace sf::cuda {

// V elements as the registers that they move in: unpacked where they are computed with.
template <class T, int V> struct Packed {
  static constexpr int kBytes = int(sizeof(T)) * V;
  using Word = std::conditional_t<kBytes % 4 == 0, uint32_t, std::conditional_t<kBytes % 2 == 0, uint16_t, uint8_t>>;
  Vec<Word, kBytes / int(sizeof(Word))> words;
};

// V consecutive elements of operand k from `at` on, or V times its one element.
template <class T, int V, int N> __device__ Packed<T, V> load(const Walk<N>& w, int k, int64_t at) {
  using Pack = Packed<T, V>;
  const char* p = w.data[k] + at;
  if constexpr (V > 1) {
    if (w.strides[k][0] == 0) {
      T x = *reinterpret_cast<const T*>(p);
      Vec<T, V> all;
      for (int i = 0; i < V; ++i) all.v[i] = x;
      return __builtin_bit_cast(Pack, all);
    }
  }
  return *reinterpret_cast<const Pack*>(p);
}

template <int V, class Out, class F, class... In>
__device__ Vec<Out, V> apply(const F& f, const Packed<In, V>&... packed) {
  Vec<Out, V> y;
  auto each = [&](const Vec<In, V>&... x) {
#pragma unroll
    for (int i = 0; i < V; ++i) y.v[i] = f(x.v[i]...);
  };
  each(__builtin_bit_cast(Vec<In, V>, packed)...);
  return y;
}

template <size_t k, class X> struct Operand { X x; };
template <class Numbers, class... X> struct Operands;
template <size_t... k, class... X> struct Operands<std::index_sequence<k...>, X...> : Operand<k, X>... {};

// V elements at a time from `i` on, `step` elements apart, up to `end`.
// The next ones are on their way while these are computed.
template <int V, class Out, class... In, class F, size_t... k>
__device__ void elements(const Walk<1 + sizeof...(In)>& w, const F& f, uint32_t i, uint32_t end, uint32_t step,
                         std::index_sequence<k...> numbers) {
  using Loaded = Operands<decltype(numbers), Packed<In, V>...>;
  Loaded now;
  char* out = nullptr;
  while (true) {
    Loaded next;
    int64_t at[1 + sizeof...(In)];
    bool more = i < end;
    if (more) {
      w.offsets(i, at);
      next = Loaded{{load<In, V>(w, int(k) + 1, at[k + 1])}...};
    }
    if (out)
      *reinterpret_cast<Vec<Out, V>*>(out) =
          apply<V, Out, F, In...>(f, static_cast<const Operand<k, Packed<In, V>>&>(now).x...);
    if (!more) return;
    now = next;
    out = w.data[0] + at[0];
    i += step;
  }
}

// Neighbouring threads take neighbouring vectors of V, or elements where operands do not allow vectors.
template <class F, class Out, class... In>
__global__ void __launch_bounds__(kThreads) elementwise_kernel(Walk<1 + sizeof...(In)> w, F f, PreviousGrid previous) {
  constexpr uint32_t V = lanes_for<Out, In...>();
  uint32_t thread = blockIdx.x * uint32_t(kThreads) + threadIdx.x, threads = gridDim.x * uint32_t(kThreads), done = 0;
  previous.wait();
  std::index_sequence_for<In...> numbers;
  if (w.vectors) {
    done = w.n - w.n % V;
    elements<V, Out, In...>(w, f, thread * V, done, threads * V, numbers);
  }
  elements<1, Out, In...>(w, f, done + thread, w.n, threads, numbers);
}

// Blocks for n vectors or elements. A thread takes up to four: two loads in flight hide more of the memory's latency
// than one, and blocks that are all resident (an H200 holds 8 on each of its 132 multiprocessors)
// leave no half-empty last wave.
constexpr unsigned elementwise_blocks(uint32_t n) {
  constexpr unsigned kResident = 8 * 132;
  unsigned once = blocks_for(n, 1), each = (once + kResident - 1) / kResident;
  each = each > 4 ? 4 : each;
  return (once + each - 1) / each;
}

// Operands of loop: out and in; their items have the sizes of Out and In.
template <class Out, class... In, class F>
void elementwise(const char* op, Device device, const F& f, const cpu::StridedLoop& loop) {
  constexpr int kOperands = 1 + sizeof...(In), V = lanes_for<Out, In...>();
  const size_t item[] = {sizeof(Out), sizeof(In)...};
  for_walks<kOperands>(loop, item, V, [&](const Walk<kOperands>& w) {
    launch(op, device, elementwise_blocks(w.vectors ? (w.n + V - 1) / V : w.n), elementwise_kernel<F, Out, In...>, w,
           f);
  });
}

// All views have out's shape; their dtypes have the sizes of Out and In.
template <class Out, class... In, class F, class... Views>
void elementwise(const char* op, const F& f, const TensorView& out, const Views&... in) {
  static_assert(sizeof...(In) == sizeof...(Views));
  elementwise<Out, In...>(op, out.device, f, cpu::StridedLoop{&out, &in...});
}

}  // namespace sf::cuda
