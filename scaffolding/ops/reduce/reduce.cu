// Reductions on CUDA, over any dimensions and strides. Accumulated in float64 (int64 for integers) in a fixed order:
// the same input gives the same bits. Contiguous memory is read by reduce_contiguous.cuh, what has gaps here,
// an element at a time.
#include "scaffolding/ops/reduce/reduce_contiguous.cuh"

namespace sf::cuda {
namespace {

// Terms first, first + step, ... of one result.
template <Reduction what, class T>
__device__ accumulator_t<what, T> partial(const ReduceArgs& r, const char* from, double center, uint32_t first,
                                          uint32_t step) {
  using A = accumulator_t<what, T>;
  using C = Combine<what, A>;
  A x = C::nothing();
  for (uint32_t i = first; i < r.reduced.n; i += step) {
    int64_t at[1];
    r.reduced.offsets(i, at);
    x = C::both(x, C::term(A(widen(*reinterpret_cast<const T*>(from + at[0]))), A(center), A(0), r.p));
  }
  return x;
}

// `threads` per result, one or all of a block: they take every threads-th term, then combine in shared memory,
// halving the number each time.
template <Reduction what, class T>
__global__ void __launch_bounds__(kThreads) reduce_strided(ReduceArgs r, uint32_t threads, PreviousGrid previous) {
  using A = accumulator_t<what, T>;
  __shared__ A of_thread[kThreads];
  uint32_t i = threads == 1 ? blockIdx.x * uint32_t(kThreads) + threadIdx.x : blockIdx.x,
           lane = threadIdx.x & (threads - 1);
  previous.wait();
  if (i >= r.kept.n) return;  // a thread alone
  int64_t at[2];
  r.kept.offsets(i, at);
  char* to = r.kept.data[0] + at[0];
  A x = partial<what, T>(r, r.kept.data[1] + at[1], center_of(r, to), lane, threads);
  if (threads > 1) {
    of_thread[threadIdx.x] = x;
    for (unsigned half = threads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) of_thread[lane] = Combine<what, A>::both(of_thread[lane], of_thread[lane + half]);
    }
    if (lane == 0) x = of_thread[0];  // its own sum: nothing orders it before the other threads
  }
  if (lane == 0) store(r, to, x);
}

template <Reduction what, class T>
void reduce_of(const Reduce& r, const cpu::StridedLoop& results, const Walk<1>& reduced) {
  const size_t item[] = {size_of(r.out.dtype), sizeof(T)};
  for_walks<2>(results, item, 1, [&](const Walk<2>& kept) {
    ReduceArgs a{
        kept, reduced,  r.center.defined() ? r.center.as<const double>() : nullptr, r.out.as<char>(), 0, r.out.dtype,
        r.p,  r.divisor};
    while ((size_t(1) << a.log_item) < item[0]) ++a.log_item;
    if constexpr (kHasVectors<what, T>)
      if (kept.n == r.out.numel() && reduce_contiguous<what, T>(r.out.device, a)) return;
    // 2^14 results keep every multiprocessor busy with a thread each (132 of them on an H100,
    // 2048 threads each at most).
    bool side_by_side = kept.strides[1][0] == int64_t(sizeof(T)) && kept.n >= (1u << 14);
    if (reduced.n <= 32 || side_by_side)
      launch("reduce", r.out.device, blocks_for(kept.n, 1), reduce_strided<what, T>, a, 1u);
    else launch("reduce", r.out.device, kept.n, reduce_strided<what, T>, a, unsigned(kThreads));
  });
}

int64_t terms(const Reduce& r) {
  int64_t n = 1;
  for (int i = r.out.ndim; i < r.in.ndim; ++i) n *= r.in.sizes[i];
  return n;
}

template <class F> void with_reduction(Reduction what, const F& f) {
  switch (what) {
#define SF_CASE(name) \
  case Reduction::name: return f(std::integral_constant<Reduction, Reduction::name>());
    SF_CASE(Sum)
    SF_CASE(Prod)
    SF_CASE(Max)
    SF_CASE(Min)
    SF_CASE(Any)
    SF_CASE(All)
    SF_CASE(AbsSum)
    SF_CASE(SquareSum)
    SF_CASE(PowerSum)
    SF_CASE(NonzeroSum)
    SF_CASE(AbsMax)
    SF_CASE(AbsMin)
    SF_CASE(SquareDeviation)
    SF_CASE(ExpDeviation)
#undef SF_CASE
  }
}

void reduce(const Reduce& r) {
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
      cpu::StridedLoop results{&r.out, &kept};
      Walk<1> terms = make_walk<1>(cpu::StridedLoop{&reduced}, item, 1);
      with_reduction(r.what, [&](auto what) { reduce_of<decltype(what)::value, T>(r, results, terms); });
    }
  });
}

bool supports(const Reduce& r) { return terms(r) <= INT32_MAX; }
SF_KERNEL(reduce_kernel, DeviceType::CUDA, "native", 0, reduce, supports)

}  // namespace
}  // namespace sf::cuda
