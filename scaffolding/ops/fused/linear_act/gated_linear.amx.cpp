// Gated projections on tiles, of bfloat16 and of float32 in parts.
#include "scaffolding/ops/matmul/split_product.h"

#include "scaffolding/ops/fused/linear_act/gated_product.h"

namespace sf {
namespace SF_ISA {

static void run_gated(const GatedLinear& g) {
  if (g.y.dtype == kBFloat16) return run<MulTiles, BFloat16>(g);
  in_parts([&](auto arithmetic, bool* rest) { run<decltype(arithmetic), float>(g, rest); });
}
static bool on_tiles(const GatedLinear& g) {
  return (g.y.dtype == kBFloat16 || (g.y.dtype == kFloat32 && g.y.sizes[1] * g.a.sizes[1] >= 1 << 15)) && supports(g) &&
         g.a.sizes[1] >= 16 && (!g.h || g.a.sizes[1] % MulTiles::kDepth == 0);
}

}  // namespace SF_ISA

SF_KERNEL(gated_linear, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gated, SF_ISA::on_tiles)

}  // namespace sf
