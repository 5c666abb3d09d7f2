#include "scaffolding/ops/fused/linear_lora/linear_lora.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/glu/glu.h"
#include "scaffolding/ops/fused/linear_act/kernel.h"
#include "scaffolding/ops/fused/linear_act/linear_act.h"
#include "scaffolding/ops/fused/linear_add/kernel.h"
#include "scaffolding/ops/fused/linear_add/linear_add.h"
#include "scaffolding/ops/fused/linear_lora/kernel.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<LinearLora> linear_lora_kernel{"linear_lora"};

namespace {

Tensor gated(const Tensor& y, const std::string& activation) {
  if (activation == "none") return y;
  return activation == "swiglu" ? swiglu(y) : geglu(y);
}

// input[M, K] @ weight^T + bias + h[M, R] @ up^T on a CPU, off the tape, rounded once.
Tensor on_cpu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& h, const Tensor& up) {
  const char* op = "linear_lora";
  const Tensor w = weight.t().unsqueeze(0), u = up.t().unsqueeze(0);
  if (is_reduced(x.dtype()) || x.dtype() == kFloat32) {
    Tensor y = empty({x.size(0), weight.size(0)}, x.dtype(), x.device());
    // held until the kernel has run: they are copies where memory lies otherwise
    const Tensor rows = contiguous(x), base = contiguous(weight), side = contiguous(up);
    LinearLora args{rows, base, h, side, bias, y};
    if (auto kernel = linear_lora_kernel.find(x.device(), args)) {
      kernel(args);
      return y;
    }
  }
  if (!is_reduced(x.dtype())) {
    // The layer's product by the kernel that it has without a side path, as exact as then; the short sums on top.
    const Tensor y = gemm_product(op, x.unsqueeze(0), w, {.bias = bias, .b_is_weight = true});
    gemm_into(op, h.unsqueeze(0), u, y, 1, {.b_is_weight = true});
    return y.squeeze(0);
  }
  // The layer's product by whichever kernel is best at it, in float32, and the short sums of the other on top.
  const Tensor sum = empty({1, x.size(0), weight.size(0)}, kFloat32, x.device());
  gemm_into(op, x.unsqueeze(0), w, sum, 0, {.bias = bias, .b_is_weight = true});
  gemm_into(op, h.unsqueeze(0), u, sum, 1, {.b_is_weight = true});
  return to_dtype(sum.squeeze(0), x.dtype());
}

}  // namespace

Tensor linear_lora(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& down, const Tensor& up,
                   const Scalar& scale, const std::string& activation, const Tensor& residual) {
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
  const bool is_gated = activation != "none";
  SF_CHECK(!is_gated || activation == "geglu" || activation == "swiglu", op,
           ": activation must be none, geglu or swiglu, got '", activation, "'");
  SF_CHECK(!is_gated || weight.size(0) % 2 == 0, op, ": weight must have an even number of rows, hidden and gate, got ",
           weight.shape());
  for (const Tensor* t : {&weight, &bias, &down, &up, &residual}) check_same_device(op, input, *t);
  Shape out = input.shape();
  out.back() = weight.size(0);
  Shape given = out;
  if (is_gated) given.back() /= 2;
  check_shape(op, "residual", residual, given);

  const double s = scale.to_double();
  const DType dtype = input.dtype();
  const bool one_type = weight.dtype() == dtype && down.dtype() == dtype && up.dtype() == dtype;
  if (autocast::active() || !one_type || !input.device().is_cpu() || input.numel() == 0 || up.numel() == 0 ||
      autograd::any_requires_grad({input, weight, bias, down, up, residual})) {
    Tensor h = linear(input, down);
    if (s != 1) h = h * s;
    if (!is_gated && residual) return linear_add(input, weight, bias, linear_add(h, up, {}, residual));
    const Tensor y = gated(linear_add(input, weight, bias, linear(h, up)), activation);
    return residual ? residual + y : y;
  }
  const int64_t rows = input.numel() / weight.size(1);
  const Tensor h = gemm_product(op, input.reshape({1, rows, weight.size(1)}), down.t().unsqueeze(0),
                                {.alpha = s, .b_is_weight = true});
  const Tensor y = linear_lora_within(input, weight, bias, h, up, activation);
  return residual ? residual + y : y;
}

Tensor linear_lora_within(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& given,
                          const Tensor& up, const std::string& activation) {
  const int64_t rows = input.numel() / weight.size(1);
  const Tensor x = input.reshape({rows, weight.size(1)}), h = given.reshape({rows, up.size(1)});
  Shape out = input.shape();
  out.back() = activation == "none" ? weight.size(0) : weight.size(0) / 2;
  if (activation != "none")
    if (Tensor y = linear_gated_beside(x, weight, bias, activation == "swiglu", h, contiguous(up))) return y.view(out);
  const Tensor b = bias && bias.dtype() != kFloat32 ? to_dtype(bias, x.dtype()) : bias;
  return gated(on_cpu(x, weight, b ? contiguous(b) : b, h, up), activation).view(out);
}

SF_OP(linear_lora, "input, weight, bias, down, up, scale=1.0, activation='none', residual=None")
    .doc(
        "act(input[..., K] @ weight[N, K]^T + bias[N] + scale * (input @ down[R, K]^T) @ up[N, R]^T) + residual: a "
        "linear layer with a low-rank side path. activation: none, geglu or swiglu. bias and residual may be None.")
    .like(
        "(lambda y: {'none': lambda: y, 'geglu': lambda: y.chunk(2, -1)[0] * F.gelu(y.chunk(2, -1)[1]), "
        "'swiglu': lambda: y.chunk(2, -1)[0] * F.silu(y.chunk(2, -1)[1])}[activation]())"
        "(F.linear(input, weight, bias) + scale * F.linear(F.linear(input, down), up)) "
        "+ (0 if residual is None else residual)")
    .kernels(gemm, linear_lora_kernel, gated_linear, linear_add_kernel);

}  // namespace sf
