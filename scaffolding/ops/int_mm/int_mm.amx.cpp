// Products of int8 on tiles.
#include "scaffolding/ops/int_mm/int8_tiles.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/matmul/few_rows.h"

namespace sf {
namespace SF_ISA {

// multiply-adds that are worth padding to whole tiles
constexpr int64_t kLeastWork = 1 << 15;

static void run_int_mm(const IntMm& g) { multiply<MulByteTiles>(product_of<MulByteTiles>(g)); }

static bool supports(const IntMm& g) {
  const int64_t m = g.c.sizes[0], n = g.c.sizes[1], k = g.a.sizes[1];
  return m >= 5 && n >= 8 && k >= 16 && m * n * k >= kLeastWork;
}

}  // namespace SF_ISA

SF_KERNEL(int_mm_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_int_mm, SF_ISA::supports)

}  // namespace sf
