#include "scaffolding/ops/fused/linear_act/linear_act.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/glu/glu.h"
#include "scaffolding/ops/fused/linear_act/kernel.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<GatedLinear> gated_linear{"gated_linear"};

namespace {

Activation activation_from(const std::string& name) {
  static constexpr std::pair<const char*, Activation> known[] = {{"relu", Activation::Relu},
                                                                 {"gelu", Activation::GeluErf},
                                                                 {"gelu_tanh", Activation::GeluTanh},
                                                                 {"silu", Activation::Silu},
                                                                 {"quick_gelu", Activation::QuickGelu}};
  for (auto& [n, a] : known)
    if (name == n) return a;
  fail("linear_act: activation must be relu, gelu, gelu_tanh, silu or quick_gelu, got '", name, "'");
}

Tensor activate(const Tensor& x, Activation a) {
  switch (a) {
    case Activation::Relu: return relu(x);
    case Activation::GeluErf: return gelu(x);
    case Activation::GeluTanh: return gelu(x, "tanh");
    case Activation::QuickGelu: return quick_gelu(x);
    default: return silu(x);
  }
}

// Rows of input, after the checks that both ops share.
int64_t checked_rows(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_defined(op, "input", input);
  check_defined(op, "weight", weight);
  check_floating(op, "input", input);
  SF_CHECK_AS(TypeError, weight.dtype() == input.dtype(), op, ": input and weight must have one dtype, got ",
              input.dtype(), " and ", weight.dtype());
  check_same_device(op, input, weight);
  check_same_device(op, input, bias);
  SF_CHECK(input.ndim() >= 1 && weight.ndim() == 2, op, ": needs input [..., K] and weight [N, K], got ", input.shape(),
           " and ", weight.shape());
  SF_CHECK(input.shape().back() == weight.size(1), op, ": the last size of input ", input.shape(),
           " must be weight's second, ", weight.size(1));
  check_shape(op, "bias", bias, {weight.size(0)});
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < input.ndim(); ++i) rows *= input.shape()[i];
  return rows;
}

// Contiguous, in a dtype that the kernels add: float32, or the product's.
Tensor kernel_bias(const Tensor& bias, DType dtype) {
  return bias ? contiguous(bias.dtype() == kFloat32 && dtype != kFloat64 ? bias : to_dtype(bias, dtype)) : bias;
}

// The kernel's result; absent where there is none. h and up: of a side path, or absent.
Tensor gated_by_kernel(const Tensor& input, const Tensor& weight, const Tensor& bias, Activation act, bool gate_first,
                       int64_t rows, const Tensor& h = {}, const Tensor& up = {}) {
  const int64_t n = weight.size(0) / 2;
  const bool on_gpu = weight.device().is_cuda() && warpgroup_products() != WarpgroupProducts::Off;
  if ((!weight.device().is_cpu() && !on_gpu) || rows == 0 || n == 0) return {};
  Shape out = input.shape();
  out.back() = n;
  Tensor y = empty(out, input.dtype(), input.device()), b = kernel_bias(bias, input.dtype());
  const int64_t hidden = gate_first ? n : 0, gate = gate_first ? 0 : n;
  // held until the kernel has run: copies where memory lies otherwise
  const Tensor x = input.reshape({rows, weight.size(1)}), side = h ? h.reshape({rows, up.size(1)}) : h;
  GatedLinear g{x,
                weight.narrow(0, hidden, n),
                weight.narrow(0, gate, n),
                b ? b.narrow(0, hidden, n) : b,
                b ? b.narrow(0, gate, n) : b,
                act,
                y.view({rows, n}),
                uint64_t(weight.version()) + 1};
  if (h) {
    g.h = side;
    g.up_hidden = up.narrow(0, hidden, n), g.up_gate = up.narrow(0, gate, n);
  }
  auto kernel = gated_linear.find(input.device(), g);
  if (!kernel) return {};
  weight.storage()->packed = true;
  kernel(g);
  return y;
}

Tensor linear_gated(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias, Activation act,
                    bool gate_first) {
  const int64_t rows = checked_rows(op, input, weight, bias);
  SF_CHECK(weight.size(0) % 2 == 0, op, ": weight must have an even number of rows, hidden and gate, got ",
           weight.shape());
  // In training the projection is needed for its gradient: two recorded ops keep no more than one would.
  if (!autograd::any_requires_grad({input, weight, bias}))
    if (Tensor y = gated_by_kernel(input, weight, bias, act, gate_first, rows)) return y;
  Tensor projection = linear(input, weight, bias);
  return act == Activation::Silu ? swiglu(projection, gate_first) : geglu(projection, gate_first);
}

}  // namespace

Tensor linear_act(const Tensor& input, const Tensor& weight, const Tensor& bias, const std::string& activation) {
  SF_AUTOCAST(linear_act, input, weight, bias, activation);
  Activation act = activation_from(activation);
  const int64_t rows = checked_rows("linear_act", input, weight, bias);
  // In training the argument of the activation is needed anyway: two recorded ops keep no more than one would.
  if (autograd::any_requires_grad({input, weight, bias})) return activate(linear(input, weight, bias), act);
  Shape out = input.shape();
  out.back() = weight.size(0);
  return gemm_product("linear_act", input.reshape({1, rows, weight.size(1)}), weight.t().unsqueeze(0),
                      {.bias = kernel_bias(bias, input.dtype()), .act = act, .b_is_weight = true})
      .view(out);
}

Tensor linear_geglu(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  SF_AUTOCAST(linear_geglu, input, weight, bias);
  return linear_gated("linear_geglu", input, weight, bias, Activation::GeluErf, false);
}
Tensor linear_swiglu(const Tensor& input, const Tensor& weight, const Tensor& bias, bool gate_first) {
  SF_AUTOCAST(linear_swiglu, input, weight, bias, gate_first);
  return linear_gated("linear_swiglu", input, weight, bias, Activation::Silu, gate_first);
}

Tensor linear_gated_beside(const Tensor& input, const Tensor& weight, const Tensor& bias, bool silu, const Tensor& h,
                           const Tensor& up) {
  return gated_by_kernel(input, weight, bias, silu ? Activation::Silu : Activation::GeluErf, false,
                         h.numel() / std::max<int64_t>(up.size(1), 1), h, up);
}

SF_OP(linear_act, "input, weight, bias=None, activation='gelu'")
    .doc("activation(linear(input, weight, bias)) with the activation in the product's epilogue.")
    .like(
        "{'relu': torch.relu, 'gelu': F.gelu, 'silu': F.silu, 'gelu_tanh': lambda x: F.gelu(x, approximate='tanh'), "
        "'quick_gelu': lambda x: x * "
        "torch.sigmoid(1.702 * x)}[activation](F.linear(input, weight, bias))")
    .kernels(gemm);
SF_OP(linear_geglu, "input, weight, bias=None")
    .doc("hidden * gelu(gate) of one projection [hidden, gate], diffusers' GEGLU.")
    .like("(lambda h: h.chunk(2, -1)[0] * F.gelu(h.chunk(2, -1)[1]))(F.linear(input, weight, bias))")
    .kernels(gated_linear, gemm);
SF_OP(linear_swiglu, "input, weight, bias=None, gate_first=False")
    .doc("hidden * silu(gate) of one projection.")
    .like(
        "(lambda h: h.chunk(2, -1)[1 if gate_first else 0] * F.silu(h.chunk(2, -1)[0 if gate_first else "
        "1]))(F.linear(input, weight, bias))")
    .kernels(gated_linear, gemm);

}  // namespace sf
