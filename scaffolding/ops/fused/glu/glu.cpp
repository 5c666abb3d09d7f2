#include "scaffolding/ops/fused/glu/glu.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/glu/kernel.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf {

constinit KernelTable<GluForward> glu_forward{"glu"};
constinit KernelTable<GluBackward> glu_backward{"glu_backward"};

namespace {

GluActivation activation_from(const std::string& name) {
  static constexpr std::pair<const char*, GluActivation> known[] = {{"gelu", GluActivation::Gelu},
                                                                    {"gelu_tanh", GluActivation::GeluTanh},
                                                                    {"silu", GluActivation::Silu},
                                                                    {"sigmoid", GluActivation::Sigmoid},
                                                                    {"relu", GluActivation::Relu}};
  for (auto& [n, a] : known)
    if (name == n) return a;
  fail("glu: activation must be gelu, gelu_tanh, silu, sigmoid or relu, got '", name, "'");
}

Tensor activate(const Tensor& x, GluActivation a) {
  switch (a) {
    case GluActivation::Gelu: return gelu(x);
    case GluActivation::GeluTanh: return gelu(x, "tanh");
    case GluActivation::Silu: return silu(x);
    case GluActivation::Sigmoid: return sigmoid(x);
    default: return relu(x);
  }
}

Tensor glu_reference(const Tensor& x, GluActivation act, bool gate_first) {
  Tensors halves = x.chunk(2, -1);
  return halves[gate_first ? 1 : 0] * activate(halves[gate_first ? 0 : 1], act);
}

Tensor gated(const char* op, const Tensor& input, GluActivation act, bool gate_first) {
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  SF_CHECK(input.ndim() > 0 && input.size(-1) % 2 == 0, op, ": the last size must be even, got ", input.shape());
  int64_t c = input.size(-1) / 2, rows = 1;
  for (int64_t i = 0; i + 1 < input.ndim(); ++i) rows *= input.shape()[i];
  Shape out = input.shape();
  out.back() = c;
  auto halves = [rows, c, gate_first](const Tensor& x) {  // {hidden, gate} as [rows, c] views
    Tensor flat = x.view({rows, 2 * c});
    return std::pair{flat.narrow(1, gate_first ? c : 0, c), flat.narrow(1, gate_first ? 0 : c, c)};
  };
  Tensor y = empty(out, input.dtype(), input.device());
  if (y.numel() > 0) {
    autograd::NoGrad off;
    auto [hidden, gate] = halves(contiguous(input));
    GluForward f{hidden, gate, act, y.view({rows, c})};
    auto kernel = glu_forward.find(input.device(), f);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", input.device());
    kernel(f);
  }
  return autograd::record(
      op, y, {input},
      [x = autograd::save(input), act, halves, rows, c](const Tensor& dy) -> Tensors {
        Tensor in = contiguous(x.get()), dx = empty(in.shape(), in.dtype(), in.device()), g = contiguous(dy);
        if (dx.numel() == 0) return {dx};
        auto [hidden, gate] = halves(in);
        auto [dhidden, dgate] = halves(dx);
        GluBackward b{hidden, gate, g.view({rows, c}), act, dhidden, dgate};
        glu_backward.find(in.device(), b)(b);
        return {dx};
      },
      [act, gate_first](const Tensors& in) -> Tensors { return {glu_reference(in[0], act, gate_first)}; });
}

}  // namespace

Tensor glu(const Tensor& input, const std::string& activation, bool gate_first) {
  return gated("glu", input, activation_from(activation), gate_first);
}
Tensor geglu(const Tensor& input, bool gate_first) { return gated("geglu", input, GluActivation::Gelu, gate_first); }
Tensor swiglu(const Tensor& input, bool gate_first) { return gated("swiglu", input, GluActivation::Silu, gate_first); }

SF_OP(glu, "input, activation='sigmoid', gate_first=False")
    .doc("One half of the last dimension times the activation of the other, in one pass.")
    .like(
        "input.chunk(2, -1)[1 if gate_first else 0] * {'sigmoid': torch.sigmoid, 'gelu': F.gelu, 'silu': F.silu, "
        "'relu': torch.relu, "
        "'gelu_tanh': lambda x: F.gelu(x, approximate='tanh')}[activation](input.chunk(2, -1)[0 if gate_first else 1])")
    .kernels(glu_forward, glu_backward);
SF_OP(geglu, "input, gate_first=False")
    .doc("hidden * gelu(gate), diffusers' GEGLU on an already projected input.")
    .like("input.chunk(2, -1)[1 if gate_first else 0] * F.gelu(input.chunk(2, -1)[0 if gate_first else 1])")
    .kernels(glu_forward, glu_backward);
SF_OP(swiglu, "input, gate_first=False")
    .doc("hidden * silu(gate).")
    .like("input.chunk(2, -1)[1 if gate_first else 0] * F.silu(input.chunk(2, -1)[0 if gate_first else 1])")
    .kernels(glu_forward, glu_backward);

}  // namespace sf
