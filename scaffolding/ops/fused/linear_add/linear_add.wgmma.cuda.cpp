// A linear layer and its residual by wgmma_product.h.
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/fused/linear_add/kernel.h"
#include "scaffolding/ops/matmul/wgmma_product.h"

namespace sf::cuda {
namespace {

std::optional<WgmmaProduct> product_of(const LinearAdd& g) {
  if (!is_reduced(g.a.dtype) || g.a.strides[2] != 1 || g.b.strides[1] != 1) return {};
  WgmmaProduct p;
  p.operands = p.dtype = g.a.dtype, p.device = g.c.device;
  p.m = g.c.sizes[1], p.n = g.c.sizes[2], p.k = g.a.sizes[2];
  p.a = g.a.data, p.a_row = p.m > 1 ? g.a.strides[1] : p.k;
  p.b = g.b.data, p.b_row = p.n > 1 ? g.b.strides[2] : p.k;
  p.c = g.c.data, p.c_row = p.n;
  p.bias = g.bias, p.addend = g.residual.data, p.addend_row = p.n, p.beta = 1;
  if (p.a_row < p.k || p.b_row < p.k || !p.fits()) return {};
  return p;
}

void run(const LinearAdd& g) { product_of(g)->run("linear_add"); }

bool supports(const LinearAdd& g) {
  if (warpgroup_products() == WarpgroupProducts::Off) return false;
  const auto p = product_of(g);
  return p && wgmma_is_wanted(*p, "linear_add", [&] { run_by_cublaslt(linear_add_kernel, g); });
}

SF_KERNEL(linear_add_kernel, DeviceType::CUDA, "wgmma", 20, run, supports)

}  // namespace
}  // namespace sf::cuda
