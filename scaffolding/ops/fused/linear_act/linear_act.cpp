#include "scaffolding/ops/fused/linear_act/linear_act.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/glu/glu.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

namespace {

Activation activation_from(const std::string& name) {
  static constexpr std::pair<const char*, Activation> known[] = {
      {"relu", Activation::Relu}, {"gelu", Activation::GeluErf}, {"gelu_tanh", Activation::GeluTanh}, {"silu", Activation::Silu}};
  for (auto& [n, a] : known)
    if (name == n) return a;
  fail("linear_act: activation must be relu, gelu, gelu_tanh or silu, got '", name, "'");
}

Tensor activate(const Tensor& x, Activation a) {
  switch (a) {
    case Activation::Relu: return relu(x);
    case Activation::GeluErf: return gelu(x);
    case Activation::GeluTanh: return gelu(x, "tanh");
    default: return silu(x);
  }
}

}  // namespace

Tensor linear_act(const Tensor& input, const Tensor& weight, const Tensor& bias, const std::string& activation) {
  SF_AUTOCAST(linear_act, input, weight, bias, activation);
  Activation act = activation_from(activation);
  check_defined("linear_act", "input", input);
  check_defined("linear_act", "weight", weight);
  check_floating("linear_act", "input", input);
  // In training the argument of the activation is needed anyway: two recorded ops keep no more than one would.
  if (autograd::any_requires_grad({input, weight, bias})) return activate(linear(input, weight, bias), act);
  SF_CHECK_AS(TypeError, weight.dtype() == input.dtype(), "linear_act: input and weight must have one dtype, got ", input.dtype(), " and ", weight.dtype());
  check_same_device("linear_act", input, weight);
  check_same_device("linear_act", input, bias);
  SF_CHECK(input.ndim() >= 1 && weight.ndim() == 2, "linear_act: needs input [..., K] and weight [N, K], got ", input.shape(), " and ", weight.shape());
  SF_CHECK(input.shape().back() == weight.size(1), "linear_act: the last size of input ", input.shape(), " must be weight's second, ", weight.size(1));
  check_shape("linear_act", "bias", bias, {weight.size(0)});
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < input.ndim(); ++i) rows *= input.shape()[i];
  Shape out = input.shape();
  out.back() = weight.size(0);
  Tensor b = bias ? contiguous(bias.dtype() == kFloat32 ? bias : to_dtype(bias, input.dtype())) : bias;
  if (b && input.dtype() == kFloat64) b = to_dtype(b, kFloat64);
  return gemm_product("linear_act", input.reshape({1, rows, weight.size(1)}), weight.t().unsqueeze(0), {.bias = b, .act = act, .b_is_weight = true}).view(out);
}

Tensor linear_geglu(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  SF_AUTOCAST(linear_geglu, input, weight, bias);
  return geglu(linear(input, weight, bias));
}
Tensor linear_swiglu(const Tensor& input, const Tensor& weight, const Tensor& bias, bool gate_first) {
  SF_AUTOCAST(linear_swiglu, input, weight, bias, gate_first);
  return swiglu(linear(input, weight, bias), gate_first);
}

SF_OP(linear_act, "input, weight, bias=None, activation='gelu'")
    .doc("activation(linear(input, weight, bias)) with the activation in the product's epilogue.")
    .like(
        "{'relu': torch.relu, 'gelu': F.gelu, 'silu': F.silu, 'gelu_tanh': lambda x: F.gelu(x, approximate='tanh')}[activation](F.linear(input, weight, bias))")
    .kernels(gemm);
SF_OP(linear_geglu, "input, weight, bias=None")
    .doc("hidden * gelu(gate) of one projection [hidden, gate], diffusers' GEGLU.")
    .like("(lambda h: h.chunk(2, -1)[0] * F.gelu(h.chunk(2, -1)[1]))(F.linear(input, weight, bias))")
    .kernels(gemm);
SF_OP(linear_swiglu, "input, weight, bias=None, gate_first=False")
    .doc("hidden * silu(gate) of one projection.")
    .like("(lambda h: h.chunk(2, -1)[1 if gate_first else 0] * F.silu(h.chunk(2, -1)[0 if gate_first else 1]))(F.linear(input, weight, bias))")
    .kernels(gemm);

}  // namespace sf
