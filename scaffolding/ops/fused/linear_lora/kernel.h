// A linear layer with a low-rank side path as one product: the contract with backends. Where no provider supports a
// call, there are two products and a sum.
//
// y[m, n] = sum_k a[m, k] b[n, k] + sum_r h[m, r] up[n, r] + bias[n], rounded once. a is [M, K], b [N, K], h [M, R], up
// [N, R], each with stride 1 along its last dimension; bias is [N] or undefined, in the dtype or float32; y is dense.
// One floating dtype.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

struct LinearLora {
  TensorView a, b, h, up, bias, y;
};
extern KernelTable<LinearLora> linear_lora_kernel;

}  // namespace sf
