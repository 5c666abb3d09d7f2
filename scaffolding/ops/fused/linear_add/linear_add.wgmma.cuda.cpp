// A linear layer and its residual by wgmma_product.h.
#include "scaffolding/ops/fused/linear_add/kernel.h"
#include "scaffolding/ops/matmul/wgmma_product.h"

namespace sf::cuda {
namespace {

std::optional<WgmmaProduct> product_of(const LinearAdd& g) {
  auto p = wgmma_product_of(g.a, g.b, g.c);
  if (!p) return {};
  p->bias = g.bias, p->addend = g.residual.data, p->addend_row = p->n, p->beta = 1;
  return p->fits() ? p : std::nullopt;
}

void run(const LinearAdd& g) { product_of(g)->run("linear_add"); }
bool supports(const LinearAdd& g) {
  return wgmma_supports(g, product_of, "linear_add", [&] { run_by_cublaslt(linear_add_kernel, g); });
}

SF_KERNEL(linear_add_kernel, DeviceType::CUDA, "wgmma", 20, run, supports)

}  // namespace
}  // namespace sf::cuda
