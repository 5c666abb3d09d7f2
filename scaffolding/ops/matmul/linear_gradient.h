// Both gradients of a linear layer's parameters at once: the contract with backends. Where no provider supports a call,
// there are two passes over dy.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// dw[1, N, K] = dy[1, M, N]^T x[1, M, K], db[N] = the sum of dy's rows. One floating dtype; dw is dense; dy and x have
// a dimension of stride 1.
struct LinearGradient {
  TensorView dy, x, dw, db;
};
extern KernelTable<LinearGradient> linear_gradient;

}  // namespace sf
