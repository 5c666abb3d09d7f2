// Running extrema and sums of exponentials: the contract with backends.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// Along the last dimension of the views; NaN wins, of equals the last.
struct RunningExtremum {
  TensorView values, in;  // [kept..., n], one shape and dtype
  TensorView indices;     // int64, the same shape
  bool largest = true;
};
extern KernelTable<RunningExtremum> running_extremum_kernel;

// out[i] = log(exp(in[i]) + exp(out[i-1])), or (reverse) out[i+1].
struct RunningLogSum {
  TensorView out, in;  // [kept..., n], one shape and floating dtype
  bool reverse = false;
};
extern KernelTable<RunningLogSum> running_log_sum_kernel;

}  // namespace sf
