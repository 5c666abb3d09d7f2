// Gated projections by our own matrix kernel, every dtype.
#include "scaffolding/backend/cpu/bf16_dot.h"
#include "scaffolding/ops/fused/linear_act/gated_product.h"

namespace sf {
namespace SF_ISA {

static void run_gated(const GatedLinear& g) {
  switch (g.y.dtype) {
    case kFloat16: return run<MulF32, Half>(g);
    case kBFloat16:
#if defined(__AVX512BF16__)
      if (cpu::bf16_dot_pays()) return run<MulBF16, BFloat16>(g);
#endif
      return run<MulF32, BFloat16>(g);
    default: return run<MulF32, float>(g);
  }
}

}  // namespace SF_ISA

SF_KERNEL(gated_linear, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gated, SF_ISA::supports)

}  // namespace sf
