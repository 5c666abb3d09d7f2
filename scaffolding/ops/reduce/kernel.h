// Reductions: the contract with backends.
// Inputs are seen with the kept dimensions first and the reduced ones last, any strides; results are dense.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// What is summed, multiplied or compared. c is the element's `center`; p is Reduce::p.
enum class Reduction : uint8_t {
  Sum,   // x
  Prod,  // x
  Max,
  Min,  // x; NaN wins
  Any,
  All,         // x != 0
  AbsSum,      // |x|
  SquareSum,   // x^2
  PowerSum,    // |x|^p
  NonzeroSum,  // x != 0
  AbsMax,
  AbsMin,           // |x|; NaN wins
  SquareDeviation,  // (x - c)^2
  ExpDeviation,     // exp(x - c)
};

// out's dtype: int64 for Sum and Prod of integers and bools, in's for Max and Min, bool for Any and All, else any
// floating type (sums are kept in float64 until they are stored). Nothing to reduce gives 0, 1, -inf or false.
struct Reduce {
  TensorView out;     // [kept...], contiguous
  TensorView in;      // [kept..., reduced...]
  TensorView center;  // float64, out's shape, contiguous; deviations only
  Reduction what = Reduction::Sum;
  double p = 0;
  double divisor = 1;  // floating results are divided by it
};
extern KernelTable<Reduce> reduce_kernel;

// The largest (or smallest) of in[kept..., :] and where it is: the first of equals; the first NaN when there is one.
struct ArgReduce {
  TensorView values;   // [kept...], in's dtype, contiguous; may be absent
  TensorView indices;  // [kept...], int64, contiguous
  TensorView in;       // [kept..., n], n > 0
  bool largest = true;
};
extern KernelTable<ArgReduce> arg_reduce_kernel;

// Running sums or products along the last dimension of the views, forwards or (reverse) backwards.
// CumSum: out[i] = in[i] + out[i-1]. CumProd: products. Weighted: out[i] = in[i] + factor[i] * out[i-1].
enum class Scanning : uint8_t { CumSum, CumProd, Weighted };
struct Scan {
  TensorView out, in;  // [kept..., n], one shape and dtype
  TensorView factor;   // Weighted only: same shape and dtype
  Scanning what = Scanning::CumSum;
  bool reverse = false;
};
extern KernelTable<Scan> scan_kernel;

}  // namespace sf
