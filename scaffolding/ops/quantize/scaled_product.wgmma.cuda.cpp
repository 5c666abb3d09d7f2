// Products of float8_e4m3fn into 16 bits by wgmma_product.h, whose sums are those of fast accumulation: 13 bits of
// mantissa, of which the result keeps 11 at most.
#include "scaffolding/ops/matmul/wgmma_product.h"
#include "scaffolding/ops/quantize/kernel.h"

namespace sf::cuda {
namespace {

std::optional<WgmmaProduct> product_of(const ScaledProduct& g) {
  if (g.a.dtype != kFloat8E4M3 || g.b.dtype != kFloat8E4M3 || g.a.strides[1] != 1 || g.b.strides[0] != 1 ||
      g.c.strides[1] != 1 || !g.scale_a.defined() || !g.scale_b.defined())
    return {};
  WgmmaProduct p;
  p.operands = g.a.dtype, p.dtype = g.c.dtype, p.device = g.c.device;
  p.m = g.c.sizes[0], p.n = g.c.sizes[1], p.k = g.a.sizes[1];
  p.a = g.a.data, p.a_row = p.m > 1 ? g.a.strides[0] : p.k;
  p.b = g.b.data, p.b_row = p.n > 1 ? g.b.strides[1] : p.k;
  p.c = g.c.data, p.c_row = p.m > 1 ? g.c.strides[0] : p.n;
  p.bias = g.bias, p.row_scale = g.scale_a, p.column_scale = g.scale_b;
  if (g.residual.defined()) p.addend = g.residual.data, p.addend_row = p.n, p.beta = 1;
  if (p.a_row < p.k || p.b_row < p.k || p.c_row < p.n || !p.fits()) return {};
  return p;
}

void run(const ScaledProduct& g) { product_of(g)->run("scaled_mm"); }

bool supports(const ScaledProduct& g) {
  if (warpgroup_products() == WarpgroupProducts::Off) return false;
  const auto p = product_of(g);
  return p && wgmma_is_wanted(*p, "scaled_mm", [&] { run_by_cublaslt(scaled_product, g); });
}

SF_KERNEL(scaled_product, DeviceType::CUDA, "wgmma", 20, run, supports)

}  // namespace
}  // namespace sf::cuda
