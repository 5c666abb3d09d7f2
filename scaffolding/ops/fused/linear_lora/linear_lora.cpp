#include "scaffolding/ops/fused/linear_lora/linear_lora.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/linear_add/kernel.h"
#include "scaffolding/ops/fused/linear_add/linear_add.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

Tensor linear_lora(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& down, const Tensor& up,
                   const Scalar& scale) {
  const char* op = "linear_lora";
  check_defined(op, "input", input);
  check_defined(op, "weight", weight);
  check_defined(op, "down", down);
  check_defined(op, "up", up);
  check_floating(op, "input", input);
  SF_CHECK(input.ndim() >= 1 && weight.ndim() == 2, op, ": needs input [..., K] and weight [N, K], got ", input.shape(),
           " and ", weight.shape());
  SF_CHECK(input.shape().back() == weight.size(1), op, ": the last size of input ", input.shape(),
           " must be weight's second, ", weight.size(1));
  SF_CHECK(down.ndim() == 2 && down.size(1) == weight.size(1), op, ": down must be [R, ", weight.size(1), "], got ",
           down.shape());
  check_shape(op, "up", up, {weight.size(0), down.size(0)});
  check_shape(op, "bias", bias, {weight.size(0)});
  for (const Tensor* t : {&weight, &bias, &down, &up}) check_same_device(op, input, *t);
  const double s = scale.to_double();
  auto scaled = [&](const Tensor& h) { return s == 1 ? h : h * s; };
  const DType dtype = input.dtype();
  const bool one_type = weight.dtype() == dtype && down.dtype() == dtype && up.dtype() == dtype;
  if (autocast::active() || !one_type || !input.device().is_cpu() || input.numel() == 0 || up.numel() == 0 ||
      autograd::any_requires_grad({input, weight, bias, down, up}))
    return linear_add(input, weight, bias, linear(scaled(linear(input, down)), up));
  // The side product is stored first, and the large product adds it in its own pass.
  Shape out = input.shape();
  out.back() = weight.size(0);
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < input.ndim(); ++i) rows *= input.shape()[i];
  const Tensor x = input.reshape({1, rows, weight.size(1)});
  const Tensor b = bias && bias.dtype() != kFloat32 ? to_dtype(bias, dtype) : bias;
  const Tensor h = gemm_product(op, x, down.t().unsqueeze(0), {.alpha = s, .b_is_weight = true});
  Tensor y = gemm_product(op, h, up.t().unsqueeze(0), {.b_is_weight = true});
  gemm_into(op, x, weight.t().unsqueeze(0), y, 1, {.bias = b ? contiguous(b) : b, .b_is_weight = true});
  return y.view(out);
}

SF_OP(linear_lora, "input, weight, bias, down, up, scale=1.0")
    .doc(
        "input[..., K] @ weight[N, K]^T + bias[N] + scale * (input @ down[R, K]^T) @ up[N, R]^T: a linear layer with a "
        "low-rank side path, the sum rounded once. bias may be None.")
    .like("F.linear(input, weight, bias) + scale * F.linear(F.linear(input, down), up)")
    .kernels(gemm, linear_add_kernel);

}  // namespace sf
