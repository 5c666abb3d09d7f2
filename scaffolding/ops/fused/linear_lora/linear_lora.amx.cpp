// A product and its low-rank side path on tiles, of bfloat16 and of float32 in parts.
#include "scaffolding/ops/matmul/split_product.h"

#include "scaffolding/ops/fused/linear_lora/lora_product.h"

namespace sf {
namespace SF_ISA {

static void run_lora(const LinearLora& g) {
  if (g.a.dtype == kBFloat16) return run<MulTiles, BFloat16>(g);
  in_parts([&](auto arithmetic, bool* rest) { run<decltype(arithmetic), float>(g, rest); });
}

// Of fewer rows, packing the weight anew costs more than storing sums does: a packed copy is kept (gemm_calls.h).
constexpr int64_t kFewestRows = 256, kFewestRowsOf16Bits = 513;

static bool supports(const LinearLora& g) {
  const DType t = g.a.dtype;
  if (t != kBFloat16 && t != kFloat32) return false;
  for (auto* x : {&g.a, &g.b, &g.h, &g.up, &g.y})
    if (x->strides[1] != 1 || x->dtype != t) return false;
  return g.y.sizes[0] >= (t == kFloat32 ? kFewestRows : kFewestRowsOf16Bits) && g.a.sizes[1] % MulTiles::kDepth == 0;
}

}  // namespace SF_ISA

SF_KERNEL(linear_lora_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_lora, SF_ISA::supports)

}  // namespace sf
