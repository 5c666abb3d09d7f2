// Matrix products. dtypes of the operands must agree; 16-bit floats accumulate in float32.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/matmul/kernel.h"

namespace sf {

Tensor matmul(const Tensor& input, const Tensor& other);  // torch.matmul: vectors, matrices, broadcast batches
Tensor mm(const Tensor& input, const Tensor& mat2);       // [M, K] @ [K, N]
Tensor bmm(const Tensor& input, const Tensor& mat2);      // [B, M, K] @ [B, K, N]
Tensor mv(const Tensor& input, const Tensor& vec);
Tensor dot(const Tensor& input, const Tensor& tensor);
Tensor outer(const Tensor& input, const Tensor& vec2);
Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, const Scalar& beta = 1,
             const Scalar& alpha = 1);
Tensor baddbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, const Scalar& beta = 1,
               const Scalar& alpha = 1);
// input[..., K] @ weight[N, K]^T + bias[N]
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias = {});

// ---- for ops built on the product (linear_act, GEGLU, conv1x1): off the tape
// c[B, M, N] = act(alpha * a[B, M, K] @ b[B, K, N] + bias); pre, when given, receives the argument of act.
struct GemmOptions {
  Tensor bias;
  Activation act = Activation::None;
  Tensor pre;
  double alpha = 1;
  bool b_is_weight = false;  // b is a long-lived weight: a packed copy may be kept
};
Tensor gemm_product(const char* op, const Tensor& a, const Tensor& b, const GemmOptions& options = {});
// The same into c (float32 or the operands' dtype), adding beta * c.
void gemm_into(const char* op, const Tensor& a, const Tensor& b, const Tensor& c, double beta,
               const GemmOptions& options = {});
// {dinput, dweight, dbias} of linear: ops, so that they can be differentiated themselves. weight is absent where dinput
// is not wanted, input where dweight is not.
Tensors linear_gradients(const Tensor& dy, const Tensor& input, const Tensor& weight, bool of_bias);

}  // namespace sf
