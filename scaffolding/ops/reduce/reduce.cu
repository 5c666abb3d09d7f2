// Reductions on CUDA, over any dimensions and strides. Accumulated in float64 (int64 for integers) in a fixed order: the same input
// gives the same bits.
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/reduce/kernel.h"

namespace sf::cuda {
namespace {

// The elements of one result (what is reduced) start where the result's place among the kept dimensions says.
struct ReduceArgs {
  Walk<2> kept;          // results: where in out, where in in
  Walk<1> reduced;       // distances from there; may have no elements
  const double* center;  // of each result, in the order of out's memory
  char* first_result;
  DType out;
  double p, divisor;
};

template <class A> __device__ inline A larger(A a, A b) { return a != a || a > b ? a : b; }  // NaN wins
template <class A> __device__ inline A smaller(A a, A b) { return a != a || a < b ? a : b; }

// How terms are made of elements and combined. A: double, or int64_t for integers.
template <Reduction what, class A> struct Combine {
  [[maybe_unused]] static constexpr bool kMax = what == Reduction::Max || what == Reduction::AbsMax, kMin = what == Reduction::Min || what == Reduction::AbsMin;
  [[maybe_unused]] static constexpr bool kProduct = what == Reduction::Prod, kAny = what == Reduction::Any, kAll = what == Reduction::All;

  __device__ static A nothing() {
    if constexpr (kMax || kMin) {
      if constexpr (std::is_integral_v<A>) return kMax ? INT64_MIN : INT64_MAX;
      else return kMax ? -A(INFINITY) : A(INFINITY);
    } else {
      return A(kProduct || kAll ? 1 : 0);
    }
  }
  __device__ static A term(A x, double center, double p) {
    if constexpr (kAny || kAll || what == Reduction::NonzeroSum) return A(x != A(0));
    else if constexpr (what == Reduction::AbsSum || what == Reduction::AbsMax || what == Reduction::AbsMin) return x < A(0) ? A(0) - x : x;
    else if constexpr (what == Reduction::SquareSum) return x * x;
    else if constexpr (what == Reduction::PowerSum) return A(::pow(::fabs(double(x)), p));
    else if constexpr (what == Reduction::SquareDeviation) return A((double(x) - center) * (double(x) - center));
    else if constexpr (what == Reduction::ExpDeviation) return A(::exp(double(x) - center));
    else return x;
  }
  __device__ static A both(A a, A b) {
    if constexpr (kMax) return larger(a, b);
    else if constexpr (kMin) return smaller(a, b);
    else if constexpr (kProduct) return std::is_integral_v<A> ? A(uint64_t(a) * uint64_t(b)) : a * b;
    else if constexpr (kAny) return A(a != A(0) || b != A(0));
    else if constexpr (kAll) return A(a != A(0) && b != A(0));
    else return a + b;
  }
};

// What integers are reduced in: their powers and deviations are real.
template <Reduction what, class T>
constexpr bool kWhole = std::is_integral_v<T>&& what != Reduction::PowerSum&& what != Reduction::SquareDeviation&& what != Reduction::ExpDeviation&& what !=
                        Reduction::SquareSum&& what != Reduction::AbsSum;
template <Reduction what, class T> using accumulator_t = std::conditional_t<kWhole<what, T>, int64_t, double>;

template <class A> __device__ void store(const ReduceArgs& r, char* to, A x) {
  switch (r.out) {
    case kBool: *reinterpret_cast<bool*>(to) = x != A(0); return;
    case kUInt8: *reinterpret_cast<uint8_t*>(to) = uint8_t(x); return;
    case kInt8: *reinterpret_cast<int8_t*>(to) = int8_t(x); return;
    case kInt16: *reinterpret_cast<int16_t*>(to) = int16_t(x); return;
    case kInt32: *reinterpret_cast<int32_t*>(to) = int32_t(x); return;
    case kInt64: *reinterpret_cast<int64_t*>(to) = int64_t(x); return;
    case kFloat64: *reinterpret_cast<double*>(to) = double(x) / r.divisor; return;
    case kFloat32: *reinterpret_cast<float*>(to) = float(double(x) / r.divisor); return;
    case kFloat16: *reinterpret_cast<Half*>(to) = narrow<Half>(float(double(x) / r.divisor)); return;
    default: *reinterpret_cast<BFloat16*>(to) = narrow<BFloat16>(float(double(x) / r.divisor)); return;
  }
}

__device__ inline double center_of(const ReduceArgs& r, const char* to, int64_t item) { return r.center ? r.center[(to - r.first_result) / item] : 0.0; }

// Terms first, first + step, ... of one result.
template <Reduction what, class T>
__device__ accumulator_t<what, T> partial(const ReduceArgs& r, const char* from, double center, uint32_t first, uint32_t step) {
  using A = accumulator_t<what, T>;
  using C = Combine<what, A>;
  A x = C::nothing();
  for (uint32_t i = first; i < r.reduced.n; i += step) {
    int64_t at[1];
    r.reduced.offsets(i, at);
    x = C::both(x, C::term(A(widen(*reinterpret_cast<const T*>(from + at[0]))), center, r.p));
  }
  return x;
}

// A block per result: its threads take every kThreads-th term, then combine in shared memory, halving the number each time.
template <Reduction what, class T> __global__ void __launch_bounds__(kThreads) reduce_by_block(ReduceArgs r, int64_t item) {
  using A = accumulator_t<what, T>;
  __shared__ A of_thread[kThreads];
  int64_t at[2];
  r.kept.offsets(blockIdx.x, at);
  char* to = r.kept.data[0] + at[0];
  of_thread[threadIdx.x] = partial<what, T>(r, r.kept.data[1] + at[1], center_of(r, to, item), threadIdx.x, kThreads);
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of_thread[threadIdx.x] = Combine<what, A>::both(of_thread[threadIdx.x], of_thread[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) store(r, to, of_thread[0]);
}

// A thread per result, for many results of few terms, or whose neighbours lie beside each other in memory.
template <Reduction what, class T> __global__ void __launch_bounds__(kThreads) reduce_by_thread(ReduceArgs r, int64_t item) {
  uint32_t i = blockIdx.x * uint32_t(kThreads) + threadIdx.x;
  if (i >= r.kept.n) return;
  int64_t at[2];
  r.kept.offsets(i, at);
  char* to = r.kept.data[0] + at[0];
  store(r, to, partial<what, T>(r, r.kept.data[1] + at[1], center_of(r, to, item), 0, 1));
}

template <Reduction what, class T> void reduce_of(const Reduce& r, const cpu::StridedLoop& results, const Walk<1>& reduced) {
  const size_t item[] = {size_of(r.out.dtype), sizeof(T)};
  for_walks<2>(results, item, 1, [&](const Walk<2>& kept) {
    ReduceArgs a{kept, reduced, r.center.defined() ? r.center.as<const double>() : nullptr, r.out.as<char>(), r.out.dtype, r.p, r.divisor};
    // 2^14 results keep every multiprocessor busy with a thread each (132 of them on an H100, 2048 threads each at most).
    bool side_by_side = kept.strides[1][0] == int64_t(sizeof(T)) && kept.n >= (1u << 14);
    if (reduced.n <= 32 || side_by_side) launch("reduce", r.out.device, blocks_for(kept.n, 1), reduce_by_thread<what, T>, a, int64_t(item[0]));
    else launch("reduce", r.out.device, kept.n, reduce_by_block<what, T>, a, int64_t(item[0]));
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

// ---- where the extremum is

struct ArgArgs {
  Walk<3> kept;  // indices, in, values (indices again where nobody asks for them)
  int64_t n, step;
  bool largest, values;
};

// Whether (x, i) comes before (y, j): the first NaN, else the largest (smallest), the first of equals.
template <class A> __device__ inline bool better(A x, int64_t i, A y, int64_t j, bool largest) {
  bool x_nan = x != x, y_nan = y != y;
  if (x_nan || y_nan) return x_nan && (!y_nan || i < j);
  if (x == y) return i < j;
  return (x > y) == largest;
}

template <class T> __global__ void __launch_bounds__(kThreads) arg_reduce_by_block(ArgArgs r) {
  using A = decltype(widen(T()));
  __shared__ A best[kThreads];
  __shared__ int64_t where[kThreads];
  int64_t at[3];
  r.kept.offsets(blockIdx.x, at);
  const char* from = r.kept.data[1] + at[1];
  A x = widen(*reinterpret_cast<const T*>(from));
  int64_t found = 0;
  for (int64_t i = threadIdx.x; i < r.n; i += kThreads) {
    A y = widen(*reinterpret_cast<const T*>(from + i * r.step));
    if (better(y, i, x, found, r.largest)) x = y, found = i;
  }
  best[threadIdx.x] = x;
  where[threadIdx.x] = found;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    unsigned other = threadIdx.x + half;
    if (threadIdx.x < half && better(best[other], where[other], best[threadIdx.x], where[threadIdx.x], r.largest))
      best[threadIdx.x] = best[other], where[threadIdx.x] = where[other];
  }
  if (threadIdx.x > 0) return;
  *reinterpret_cast<int64_t*>(r.kept.data[0] + at[0]) = where[0];
  if (r.values) *reinterpret_cast<T*>(r.kept.data[2] + at[2]) = *reinterpret_cast<const T*>(from + where[0] * r.step);
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
        launch("arg_reduce", a.in.device, w.n, arg_reduce_by_block<T>, ArgArgs{w, n, step * int64_t(sizeof(T)), a.largest, a.values.defined()});
      });
    }
  });
}

bool supports(const Reduce& r) { return terms(r) <= INT32_MAX; }
SF_KERNEL(reduce_kernel, DeviceType::CUDA, "native", 0, reduce, supports)
SF_KERNEL(arg_reduce_kernel, DeviceType::CUDA, "native", 0, arg_reduce, nullptr)

}  // namespace
}  // namespace sf::cuda
