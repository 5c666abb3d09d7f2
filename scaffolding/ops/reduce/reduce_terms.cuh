// What the reductions add, multiply and compare on CUDA, and where results go.
#pragma once
#include "scaffolding/backend/cuda/math.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/backend/cuda/walk.cuh"
#include "scaffolding/ops/reduce/kernel.h"

namespace sf::cuda {

// The elements of one result (what is reduced) start where the result's place among the kept dimensions says.
struct ReduceArgs {
  Walk<2> kept;          // results: where in out, where in in
  Walk<1> reduced;       // distances from there; may have no elements
  const double* center;  // of each result, in the order of out's memory
  char* first_result;
  int32_t log_item;  // of out, in bytes
  DType out;
  double p, divisor;
  void* partial = nullptr;  // [results, pieces]: what pieces of a result gave, where there are several
  uint32_t pieces = 1;
};
__device__ inline int64_t index_of(const ReduceArgs& r, const char* to) { return (to - r.first_result) >> r.log_item; }
__device__ inline double center_of(const ReduceArgs& r, const char* to) {
  return r.center ? r.center[index_of(r, to)] : 0.0;
}

// NaN wins.
template <class A> __device__ inline A larger(A a, A b) { return a != a || a > b ? a : b; }
template <class A> __device__ inline A smaller(A a, A b) { return a != a || a < b ? a : b; }
#ifdef __CUDA_ARCH__  // one instruction instead of three
__device__ inline float larger(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline float smaller(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
#endif

// How terms are made of elements and combined. A: double or float, or int64_t for integers.
template <Reduction what, class A> struct Combine {
  [[maybe_unused]] static constexpr bool kMax = what == Reduction::Max || what == Reduction::AbsMax,
                                         kMin = what == Reduction::Min || what == Reduction::AbsMin;
  [[maybe_unused]] static constexpr bool kProduct = what == Reduction::Prod, kAny = what == Reduction::Any,
                                         kAll = what == Reduction::All;

  __device__ static A nothing() {
    if constexpr (kMax || kMin) {
      if constexpr (std::is_integral_v<A>) return kMax ? INT64_MIN : INT64_MAX;
      else return kMax ? -A(INFINITY) : A(INFINITY);
    } else {
      return A(kProduct || kAll ? 1 : 0);
    }
  }
  // center = high + low: a float has not the digits of a mean.
  __device__ static A term(A x, A high, A low, double p) {
    if constexpr (kAny || kAll || what == Reduction::NonzeroSum) return A(x != A(0));
    else if constexpr (what == Reduction::AbsSum || what == Reduction::AbsMax || what == Reduction::AbsMin)
      return x < A(0) ? A(0) - x : x;
    else if constexpr (what == Reduction::SquareSum) return x * x;
    else if constexpr (what == Reduction::PowerSum) return A(::pow(::fabs(double(x)), p));
    else if constexpr (what == Reduction::SquareDeviation) return ((x - high) - low) * ((x - high) - low);
    else if constexpr (what == Reduction::ExpDeviation) return exp_of((x - high) - low);
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
constexpr bool kWhole =
    std::is_integral_v<T>&& what != Reduction::PowerSum&& what != Reduction::SquareDeviation&& what !=
    Reduction::ExpDeviation&& what != Reduction::SquareSum&& what != Reduction::AbsSum;
// One of the elements, or whether: nothing is rounded, nor divided afterwards.
template <Reduction what>
constexpr bool kChosen = what == Reduction::Max || what == Reduction::Min || what == Reduction::AbsMax ||
                         what == Reduction::AbsMin || what == Reduction::Any || what == Reduction::All;
template <Reduction what, class T>
using accumulator_t =
    std::conditional_t<kWhole<what, T>, int64_t, std::conditional_t<kChosen<what>, real_t<T>, double>>;

template <class A> __device__ void store(const ReduceArgs& r, char* to, A x) {
  double quotient = double(x);
  if constexpr (!std::is_same_v<A, float>)
    if (r.divisor != 1) quotient /= r.divisor;
  switch (r.out) {
    case kBool: *reinterpret_cast<bool*>(to) = x != A(0); return;
    case kUInt8: *reinterpret_cast<uint8_t*>(to) = uint8_t(x); return;
    case kInt8: *reinterpret_cast<int8_t*>(to) = int8_t(x); return;
    case kInt16: *reinterpret_cast<int16_t*>(to) = int16_t(x); return;
    case kInt32: *reinterpret_cast<int32_t*>(to) = int32_t(x); return;
    case kInt64: *reinterpret_cast<int64_t*>(to) = int64_t(x); return;
    case kFloat64: *reinterpret_cast<double*>(to) = quotient; return;
    case kFloat32: *reinterpret_cast<float*>(to) = float(quotient); return;
    case kFloat16: *reinterpret_cast<Half*>(to) = narrow<Half>(float(quotient)); return;
    default: *reinterpret_cast<BFloat16*>(to) = narrow<BFloat16>(float(quotient)); return;
  }
}

// The result, or a piece of one.
template <class A> __device__ inline void give(const ReduceArgs& r, char* to, uint32_t piece, A x) {
  if (r.partial) static_cast<A*>(r.partial)[index_of(r, to) * r.pieces + piece] = x;
  else store(r, to, x);
}

}  // namespace sf::cuda
