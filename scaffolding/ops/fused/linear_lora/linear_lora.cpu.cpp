// The side path lengthens the sums by its rank: neither it nor the layer's own product is stored before they are added.
// Beside a first product of the side path that is stored and added to, 4096 rows of 320 to 2560 cost 5 % over the bare
// layer instead of 30 % in float32, and of 16-bit floats no sum is rounded twice.
#include "scaffolding/backend/cpu/bf16_dot.h"
#include "scaffolding/ops/fused/linear_lora/lora_product.h"

namespace sf {
namespace SF_ISA {

static void run_lora(const LinearLora& g) {
  if (g.a.dtype == kFloat32) return run<MulF32, float>(g);
  if (g.a.dtype == kFloat16) return run<MulF32, Half>(g);
#if defined(__AVX512BF16__)
  if (cpu::bf16_dot_pays()) return run<MulBF16, BFloat16>(g);
#endif
  run<MulF32, BFloat16>(g);
}

// Of fewer rows, packing the weight anew costs more than storing sums does: in float32 it can be read where it lies
// (row_gemm.h), of 16-bit floats a packed copy is kept (gemm.cpu.cpp).
constexpr int64_t kFewestRows = 256, kFewestRowsOf16Bits = 513;

static bool supports(const LinearLora& g) {
  const DType t = g.a.dtype;
  if ((t != kFloat32 && !is_reduced(t)) || g.b.dtype != t || g.h.dtype != t || g.up.dtype != t || g.y.dtype != t)
    return false;
  for (auto* x : {&g.a, &g.b, &g.h, &g.up, &g.y})
    if (x->strides[1] != 1) return false;
  return g.y.sizes[0] >= (t == kFloat32 ? kFewestRows : kFewestRowsOf16Bits) && g.a.sizes[1] % 2 == 0 &&
         !(t == kBFloat16 && cpu::bf16_library_pays() && !cpu::bf16_dot_pays());
}

}  // namespace SF_ISA

SF_KERNEL(linear_lora_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_lora, SF_ISA::supports)

}  // namespace sf
