// A matrix product beside a residual: the contract with backends. Where no provider supports a call,
// there is a product and a sum.
//
// c[m, n] = sum_k a[m, k] b[k, n] + bias[n] + residual[m, n], of a[1, M, K] and b[1, K, N]. One floating dtype; a and b
// have a dimension of stride 1, c and residual are dense rows of [1, M, N] and different memory. bias is [N],
// of that dtype, or undefined.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct LinearAdd {
  TensorView a, b, bias, residual, c;
};
extern KernelTable<LinearAdd> linear_add_kernel;

}  // namespace sf
