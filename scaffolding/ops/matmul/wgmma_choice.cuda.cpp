// Which products wgmma_product.h makes.
#include <string>

#include "scaffolding/backend/cuda/timed_choice.h"
#include "scaffolding/ops/matmul/cublaslt_product.h"
#include "scaffolding/ops/matmul/wgmma_product.h"

namespace sf::cuda {

std::optional<WgmmaProduct> wgmma_product_of(const TensorView& a, const TensorView& b, const TensorView& c) {
  const auto x = columns_of(a), w = columns_of(b), y = columns_of(c);
  if (c.sizes[0] != 1 || !x || x->as_written || !w || !w->as_written || !y || y->as_written) return {};
  WgmmaProduct p;
  p.operands = a.dtype, p.dtype = c.dtype, p.device = c.device;
  p.m = c.sizes[1], p.n = c.sizes[2], p.k = a.sizes[2];
  p.a = x->data, p.a_row = x->ld, p.b = w->data, p.b_row = w->ld, p.c = c.data, p.c_row = y->ld;
  return p;
}

bool wgmma_is_faster(const WgmmaProduct& p, const char* op, const std::function<void()>& library) {
  if (p.addend == p.c) return false;
  return is_faster({op,
                    p.device,
                    {1, int64_t(p.operands), int64_t(p.dtype), p.m, p.n, p.k, p.a_row, p.b_row, p.c_row,
                     int64_t(p.gate != nullptr), int64_t(p.bias.defined()), int64_t(p.addend != nullptr),
                     int64_t(p.act), p.row_scale.defined() ? p.row_scale.numel() : 0},
                    [] { return "wgmma, cuBLASLt " + std::to_string(cublaslt().version()); },
                    [&] { p.run(op); },
                    library});
}

}  // namespace sf::cuda
