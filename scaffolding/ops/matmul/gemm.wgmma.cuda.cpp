// Products with weights as linear layers keep them, [N, K], by wgmma_product.h.
#include "scaffolding/ops/matmul/tall.h"
#include "scaffolding/ops/matmul/wgmma_product.h"

namespace sf::cuda {
namespace {

std::optional<WgmmaProduct> product_of(const Gemm& given) {
  const Gemm g = tall(given);
  if (g.act != Activation::None || g.pre) return {};
  auto p = wgmma_product_of(g.a, g.b, g.c);
  if (!p) return {};
  p->bias = g.bias, p->alpha = float(g.alpha), p->beta = float(g.beta);
  if (g.beta != 0) p->addend = p->c, p->addend_row = p->c_row;
  return p->fits() ? p : std::nullopt;
}

void run(const Gemm& g) { product_of(g)->run("matmul"); }
bool supports(const Gemm& g) {
  return wgmma_supports(g, product_of, "matmul", [&] { run_by_cublaslt(gemm, g); });
}

SF_KERNEL(gemm, DeviceType::CUDA, "wgmma", 20, run, supports)

}  // namespace
}  // namespace sf::cuda
