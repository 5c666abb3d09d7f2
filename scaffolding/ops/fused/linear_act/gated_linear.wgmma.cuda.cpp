// A gated projection by wgmma_product.h: hidden and gate are columns of one tile.
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/fused/glu/kernel.h"
#include "scaffolding/ops/fused/linear_act/kernel.h"
#include "scaffolding/ops/matmul/wgmma_product.h"

namespace sf::cuda {
namespace {

std::optional<WgmmaProduct> product_of(const GatedLinear& g) {
  if (g.h.defined() || !is_reduced(g.a.dtype) || g.a.strides[1] != 1 || g.hidden.strides[1] != 1 ||
      g.gate.strides[1] != 1 || g.y.strides[1] != 1)
    return {};
  WgmmaProduct p;
  p.operands = p.dtype = g.a.dtype, p.device = g.y.device;
  p.m = g.y.sizes[0], p.n = g.y.sizes[1], p.k = g.a.sizes[1];
  p.a = g.a.data, p.a_row = p.m > 1 ? g.a.strides[0] : p.k;
  p.b = g.hidden.data, p.b_row = p.n > 1 ? g.hidden.strides[0] : p.k;
  p.gate = g.gate.data, p.gate_row = p.n > 1 ? g.gate.strides[0] : p.k;
  p.c = g.y.data, p.c_row = p.m > 1 ? g.y.strides[0] : p.n;
  p.bias = g.bias_hidden, p.gate_bias = g.bias_gate, p.act = g.act;
  if (p.a_row < p.k || p.b_row < p.k || p.gate_row < p.k || p.c_row < p.n || !p.fits()) return {};
  return p;
}

void run(const GatedLinear& g) { product_of(g)->run("gated_linear"); }

// Two products and the pass that gates one by the other.
void composed(const GatedLinear& g) {
  const size_t bytes = size_t(g.y.numel()) * size_of(g.y.dtype);
  const Scratch hidden(g.y.device, bytes), gate(g.y.device, bytes);
  auto product = [&](const TensorView& weight, const TensorView& bias, void* to) {
    auto matrix = [&](const TensorView& x, int64_t rows, int64_t cols, int64_t row, int64_t col) {
      TensorView m = x;
      m.ndim = 3;
      m.sizes[0] = 1, m.sizes[1] = rows, m.sizes[2] = cols, m.strides[0] = 0, m.strides[1] = row, m.strides[2] = col;
      return m;
    };
    Gemm x{};
    x.a = matrix(g.a, g.a.sizes[0], g.a.sizes[1], g.a.strides[0], 1);
    x.b = matrix(weight, g.a.sizes[1], g.y.sizes[1], 1, weight.strides[0]);
    x.c = matrix(g.y, g.y.sizes[0], g.y.sizes[1], g.y.sizes[1], 1);
    x.c.data = to, x.bias = bias;
    gemm.find(g.y.device, x)(x);
    TensorView made = g.y;
    made.data = to, made.strides[0] = g.y.sizes[1];
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

bool supports(const GatedLinear& g) {
  if (warpgroup_products() == WarpgroupProducts::Off) return false;
  const auto p = product_of(g);
  return p && wgmma_is_wanted(*p, "gated_linear", [&] { composed(g); });
}

SF_KERNEL(gated_linear, DeviceType::CUDA, "wgmma", 20, run, supports)

}  // namespace
}  // namespace sf::cuda
