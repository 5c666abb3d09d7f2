// Products of float8_e4m3fn into 16 bits by wgmma_product.h, whose sums are those of fast accumulation, 13 bits of
// mantissa: for calls that allow it alone.
#include "scaffolding/ops/matmul/cublaslt_product.h"
#include "scaffolding/ops/matmul/wgmma_product.h"
#include "scaffolding/ops/quantize/kernel.h"

namespace sf::cuda {
namespace {

std::optional<WgmmaProduct> product_of(const ScaledProduct& g) {
  if (!g.fast_accumulation || g.b.dtype != kFloat8E4M3 || !g.scale_a.defined() || !g.scale_b.defined()) return {};
  auto p = wgmma_product_of(batch_of_one(g.a), batch_of_one(g.b), batch_of_one(g.c));
  if (!p) return {};
  p->bias = g.bias, p->row_scale = g.scale_a, p->column_scale = g.scale_b;
  if (g.residual.defined()) p->addend = g.residual.data, p->addend_row = p->n, p->beta = 1;
  return p->fits() ? p : std::nullopt;
}

void run(const ScaledProduct& g) { product_of(g)->run("scaled_mm"); }
bool supports(const ScaledProduct& g) {
  return wgmma_supports(g, product_of, "scaled_mm", [&] { run_by_cublaslt(scaled_product, g); });
}

SF_KERNEL(scaled_product, DeviceType::CUDA, "wgmma", 20, run, supports)

}  // namespace
}  // namespace sf::cuda
