// A gated projection by wgmma_product.h: hidden and gate are columns of one tile.
#include <utility>

#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/fused/glu/kernel.h"
#include "scaffolding/ops/fused/linear_act/kernel.h"
#include "scaffolding/ops/matmul/cublaslt_product.h"
#include "scaffolding/ops/matmul/wgmma_product.h"

namespace sf::cuda {
namespace {

// A weight [N, K] as the second factor [1, K, N].
TensorView factor(const TensorView& weight) {
  TensorView b = batch_of_one(weight);
  std::swap(b.sizes[1], b.sizes[2]), std::swap(b.strides[1], b.strides[2]);
  return b;
}

std::optional<WgmmaProduct> product_of(const GatedLinear& g) {
  const TensorView a = batch_of_one(g.a), y = batch_of_one(g.y);
  auto p = wgmma_product_of(a, factor(g.hidden), y);
  const auto gate = wgmma_product_of(a, factor(g.gate), y);
  if (g.h.defined() || !p || !gate) return {};
  p->gate = gate->b, p->gate_row = gate->b_row, p->act = g.act;
  p->bias = g.bias_hidden, p->gate_bias = g.bias_gate;
  return p->fits() ? p : std::nullopt;
}

// Two products and the pass that gates one by the other.
void composed(const GatedLinear& g) {
  const size_t bytes = size_t(g.y.numel()) * size_of(g.y.dtype);
  const Scratch hidden(g.y.device, bytes), gate(g.y.device, bytes);
  auto product = [&](const TensorView& weight, const TensorView& bias, void* to) {
    TensorView made = g.y;
    made.data = to, made.strides[0] = g.y.sizes[1];
    Gemm x{};
    x.a = batch_of_one(g.a), x.b = factor(weight), x.c = batch_of_one(made), x.bias = bias;
    gemm.find(g.y.device, x)(x);
    return made;
  };
  GluForward f{};
  f.hidden = product(g.hidden, g.bias_hidden, hidden.as<void>());
  f.gate = product(g.gate, g.bias_gate, gate.as<void>());
  f.act = g.act == Activation::Silu       ? GluActivation::Silu
          : g.act == Activation::GeluTanh ? GluActivation::GeluTanh
                                          : GluActivation::Gelu;
  f.y = g.y;
  glu_forward.find(g.y.device, f)(f);
}

void run(const GatedLinear& g) { product_of(g)->run("gated_linear"); }
bool supports(const GatedLinear& g) {
  return wgmma_supports(g, product_of, "gated_linear", [&] { composed(g); });
}

SF_KERNEL(gated_linear, DeviceType::CUDA, "wgmma", 20, run, supports)

}  // namespace
}  // namespace sf::cuda
