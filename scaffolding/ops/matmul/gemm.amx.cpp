// Matrix products on tiles: bfloat16, and float32 and float16 in parts.
#include "scaffolding/ops/matmul/half_product.h"

#include "scaffolding/ops/matmul/gemm_calls.h"

namespace sf {
namespace SF_ISA {

// Below, dot products with b as it lies run at the speed of memory (few_rows.h).
constexpr int64_t kFewestRows = 5, kFewestRowsOfParts = 13;
// Sizes of b that are worth padding to whole tiles, and splitting. The number of rows hardly counts: a product that is
// done in pieces, for memory's sake, is the same to the bit.
constexpr int64_t kSmallest = 1 << 10, kSmallestOfParts = 1 << 16;

static void run_gemm(const Gemm& g) {
  if (g.a.dtype == kBFloat16) return run<MulTiles, BFloat16>(g);
  if (g.a.dtype == kFloat32)  // begins anew where something was left over: beta is 0
    return in_parts([&](auto arithmetic, bool* rest) { run<decltype(arithmetic), float>(g, rest); });
  bool rest = false;
  run<MulHalf, Half>(g, &rest);
  Gemm again = g;
  again.b_version = 0;  // the packed copy that is kept is in parts
  if (rest) run<MulF32, Half>(again);
}

static bool supports(const Gemm& g) {
  const int64_t m = g.c.sizes[1] * (g.b.strides[0] == 0 ? g.c.sizes[0] : 1), n = g.c.sizes[2], k = g.a.sizes[2];
  if (g.a.dtype != g.b.dtype || (g.c.strides[2] != 1 && n > 1)) return false;
  if (g.c.dtype != kFloat32 && !is_reduced(g.c.dtype)) return false;
  if (g.a.dtype == kBFloat16) return m >= kFewestRows && n >= 8 && k >= 8 && n * k >= kSmallest;
  return (g.a.dtype == kFloat32 || g.a.dtype == kFloat16) && g.beta == 0 && m >= kFewestRowsOfParts && n >= 16 &&
         k >= 16 && n * k >= kSmallestOfParts;
}

}  // namespace SF_ISA

SF_KERNEL(gemm, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gemm, SF_ISA::supports)

}  // namespace sf
