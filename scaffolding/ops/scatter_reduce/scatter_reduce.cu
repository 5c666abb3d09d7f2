// Products and extrema on CUDA: a thread for each line along the dimension, which goes through it in order, so that
// results are the same from run to run.
#include <algorithm>

#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/ops/scatter_reduce/kernel.h"

namespace sf::cuda {
namespace {

struct Lines {
  void* out;
  const void* src;
  const int64_t* index;
  DType dtype;
  int64_t lines, n, bound, out_step, src_step, index_step;
  int32_t ndim;
  int64_t sizes[kMaxDims], out_strides[kMaxDims], src_strides[kMaxDims], index_strides[kMaxDims];
  ScatterReduce::What what;
};

// A: int64 or double, which hold every dtype of their kind exactly.
template <class A> __global__ void __launch_bounds__(kThreads) reduce_lines(Lines l) {
  for (int64_t r = int64_t(blockIdx.x) * kThreads + threadIdx.x; r < l.lines; r += int64_t(gridDim.x) * kThreads) {
    int64_t out = 0, src = 0, index = 0, rest = r;
    for (int d = l.ndim - 1; d >= 0; --d) {
      int64_t at = rest % l.sizes[d];
      rest /= l.sizes[d];
      out += at * l.out_strides[d], src += at * l.src_strides[d], index += at * l.index_strides[d];
    }
    for (int64_t i = 0; i < l.n; ++i) {
      const int64_t position = l.index[index + i * l.index_step];
      if (uint64_t(position) >= uint64_t(l.bound)) continue;  // reported
      int64_t to = out + position * l.out_step;
      A x = element<A>(l.src, l.dtype, src + i * l.src_step), y = element<A>(l.out, l.dtype, to);
      bool wins = x != x || (y == y && (l.what == ScatterReduce::Max ? x > y : x < y));
      if (l.what == ScatterReduce::Prod) set_element<A>(l.out, l.dtype, to, A(x * y));
      else if (wins) set_element<A>(l.out, l.dtype, to, x);
    }
  }
}

void scatter_reduce(const ScatterReduce& s) {
  Lines l{};
  l.out = s.out.data, l.src = s.src.data, l.index = s.index.as<int64_t>(), l.dtype = s.out.dtype, l.what = s.what;
  l.bound = s.out.sizes[s.dim];
  l.n = s.index.sizes[s.dim], l.lines = s.index.numel() / l.n;
  l.out_step = s.out.strides[s.dim], l.src_step = s.src.strides[s.dim], l.index_step = s.index.strides[s.dim];
  for (int d = 0; d < s.index.ndim; ++d) {
    if (d == s.dim) continue;
    l.sizes[l.ndim] = s.index.sizes[d], l.out_strides[l.ndim] = s.out.strides[d];
    l.src_strides[l.ndim] = s.src.strides[d], l.index_strides[l.ndim++] = s.index.strides[d];
  }
  unsigned blocks = unsigned(std::min<int64_t>((l.lines + kThreads - 1) / kThreads, 1 << 20));
  if (is_floating(s.out.dtype)) launch("scatter_reduce", s.out.device, blocks, reduce_lines<double>, l);
  else launch("scatter_reduce", s.out.device, blocks, reduce_lines<int64_t>, l);
}
bool is_number(const ScatterReduce& s) { return s.out.dtype != kBool && !is_float8(s.out.dtype); }

SF_KERNEL(scatter_reduce_kernel, DeviceType::CUDA, "native", 0, scatter_reduce, is_number)

}  // namespace
}  // namespace sf::cuda
