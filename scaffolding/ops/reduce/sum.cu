// Sums on CUDA, and means by their divisor. Accumulated in float64 (int64 for integers) in a fixed order: the same input
// gives the same bits. The other reductions have no CUDA kernel.
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/vec.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/reduce/kernel.h"

namespace sf::cuda {
namespace {

// The elements of one result (what is reduced) start where the result's place among the kept dimensions says.
struct SumArgs {
  Walk<2> kept;     // results: where in out, where in in
  Walk<1> reduced;  // distances from there; may have no elements
  DType out;
  double divisor;
};

template <class A> __device__ void store_sum(const SumArgs& s, char* to, A sum) {
  switch (s.out) {
    case kInt64: *reinterpret_cast<int64_t*>(to) = int64_t(sum); return;
    case kFloat64: *reinterpret_cast<double*>(to) = double(sum) / s.divisor; return;
    case kFloat32: *reinterpret_cast<float*>(to) = float(double(sum) / s.divisor); return;
    case kFloat16: *reinterpret_cast<Half*>(to) = narrow<Half>(float(double(sum) / s.divisor)); return;
    default: *reinterpret_cast<BFloat16*>(to) = narrow<BFloat16>(float(double(sum) / s.divisor)); return;
  }
}

template <class T> using accumulator_t = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

// Terms first, first + step, ... of one result.
template <class T> __device__ accumulator_t<T> partial_sum(const SumArgs& s, const char* from, uint32_t first, uint32_t step) {
  accumulator_t<T> sum = 0;
  for (uint32_t i = first; i < s.reduced.n; i += step) {
    int64_t at[1];
    s.reduced.offsets(i, at);
    sum += accumulator_t<T>(widen(*reinterpret_cast<const T*>(from + at[0])));
  }
  return sum;
}

// A block per result: its threads take every kThreads-th term, then add up in shared memory, halving the number each time.
template <class T> __global__ void __launch_bounds__(kThreads) sum_by_block(SumArgs s) {
  __shared__ accumulator_t<T> partial[kThreads];
  int64_t at[2];
  s.kept.offsets(blockIdx.x, at);
  partial[threadIdx.x] = partial_sum<T>(s, s.kept.data[1] + at[1], threadIdx.x, kThreads);
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) store_sum(s, s.kept.data[0] + at[0], partial[0]);
}

// A thread per result, for many results of few terms, or whose neighbours lie beside each other in memory.
template <class T> __global__ void __launch_bounds__(kThreads) sum_by_thread(SumArgs s) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= s.kept.n) return;
  int64_t at[2];
  s.kept.offsets(i, at);
  store_sum(s, s.kept.data[0] + at[0], partial_sum<T>(s, s.kept.data[1] + at[1], 0, 1));
}

template <class T> void sum_of(const Reduce& r, const cpu::StridedLoop& results, const Walk<1>& reduced) {
  const size_t item[] = {size_of(r.out.dtype), sizeof(T)};
  for_walks<2>(results, item, 1, [&](const Walk<2>& kept) {
    SumArgs s{kept, reduced, r.out.dtype, r.divisor};
    // 2^14 results keep every multiprocessor busy with a thread each (132 of them on an H100, 2048 threads each at most).
    bool side_by_side = kept.strides[1][0] == int64_t(sizeof(T)) && kept.n >= (1u << 14);
    if (reduced.n <= 32 || side_by_side) launch("sum", r.out.device, blocks_for(kept.n, 1), sum_by_thread<T>, s);
    else launch("sum", r.out.device, kept.n, sum_by_block<T>, s);
  });
}

int64_t terms(const Reduce& r) {
  int64_t n = 1;
  for (int i = r.out.ndim; i < r.in.ndim; ++i) n *= r.in.sizes[i];
  return n;
}

void sum(const Reduce& r) {
  TensorView kept = r.in, reduced = r.in;  // the first out.ndim dimensions of in, and the rest
  kept.ndim = r.out.ndim;
  reduced.ndim = r.in.ndim - r.out.ndim;
  for (int i = 0; i < reduced.ndim; ++i) {
    reduced.sizes[i] = r.in.sizes[i + r.out.ndim];
    reduced.strides[i] = r.in.strides[i + r.out.ndim];
  }
  reduced.data = nullptr;
  visit_dtype(r.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, Float8E4M3> && !std::is_same_v<T, Float8E5M2>) {
      const size_t item[] = {sizeof(T)};
      sum_of<T>(r, cpu::StridedLoop{&r.out, &kept}, make_walk<1>(cpu::StridedLoop{&reduced}, item, 1));
    }
  });
}

bool supports(const Reduce& r) { return r.what == Reduction::Sum && terms(r) <= INT32_MAX; }
SF_KERNEL(reduce_kernel, DeviceType::CUDA, "native", 0, sum, supports)

}  // namespace
}  // namespace sf::cuda
