// Products with weights as linear layers keep them, [N, K], by wgmma_product.h.
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/matmul/tall.h"
#include "scaffolding/ops/matmul/wgmma_product.h"

namespace sf::cuda {
namespace {

std::optional<WgmmaProduct> product_of(const Gemm& given) {
  const Gemm g = tall(given);
  const int64_t k = g.a.sizes[2];
  if (g.c.sizes[0] != 1 || !is_reduced(g.a.dtype) || g.c.dtype != g.a.dtype || g.act != Activation::None || g.pre)
    return {};
  if (g.a.strides[2] != 1 || g.b.strides[1] != 1 || g.c.strides[2] != 1) return {};
  WgmmaProduct p;
  p.operands = p.dtype = g.a.dtype, p.device = g.c.device;
  p.m = g.c.sizes[1], p.n = g.c.sizes[2], p.k = k;
  p.a = g.a.data, p.a_row = p.m > 1 ? g.a.strides[1] : k;
  p.b = g.b.data, p.b_row = p.n > 1 ? g.b.strides[2] : k;
  p.c = g.c.data, p.c_row = p.m > 1 ? g.c.strides[1] : p.n;
  p.bias = g.bias, p.alpha = float(g.alpha), p.beta = float(g.beta);
  if (g.beta != 0) p.addend = p.c, p.addend_row = p.c_row;
  if (p.a_row < k || p.b_row < k || p.c_row < p.n || !p.fits()) return {};
  return p;
}

void run(const Gemm& g) { product_of(g)->run("matmul"); }

bool supports(const Gemm& g) {
  if (warpgroup_products() == WarpgroupProducts::Off) return false;
  const auto p = product_of(g);
  return p && wgmma_is_wanted(*p, "matmul", [&] { run_by_cublaslt(gemm, g); });
}

SF_KERNEL(gemm, DeviceType::CUDA, "wgmma", 20, run, supports)

}  // namespace
}  // namespace sf::cuda
