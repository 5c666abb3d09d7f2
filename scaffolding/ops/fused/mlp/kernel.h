// The two products of an mlp that its activation is part of: the contract with backends. Where no provider supports
// both, the ops run one by one.
#pragma once
#include "scaffolding/core/kernel.h"
#include "scaffolding/ops/matmul/kernel.h"

namespace sf {

// h[1, M, H] = act(x[1, M, K] w[1, K, H] + bias[H]), and in aux what the gradient of act needs. One floating dtype; x
// and w have any strides, h is dense; bias may be undefined. act is Relu or GeluTanh.
// aux is for the provider that wrote it; its rows are padded. GeluTanh: the argument of act, of that dtype, [1, M, P]
// with P >= H a multiple of 8. Relu: a bit for each element, uint8 [1, M, P / 8] with P a multiple of 128.
struct MlpHidden {
  TensorView x, w, bias, h, aux;
  Activation act = Activation::None;
};
extern KernelTable<MlpHidden> mlp_hidden;

// dpre[1, M, H] = act'(aux) * (dy[1, M, N] w[1, N, H]), dbias[H] = the sum of dpre's rows, undefined where it is not
// wanted. Dense, aux as mlp_hidden wrote it.
struct MlpHiddenGradient {
  TensorView dy, w, aux, dpre, dbias;
  Activation act = Activation::None;
};
extern KernelTable<MlpHiddenGradient> mlp_hidden_gradient;

}  // namespace sf
