// Products of int8 on tiles.
#include "scaffolding/ops/int_mm/int8_tiles.h"
#include "scaffolding/ops/int_mm/int_mm_calls.h"

namespace sf {
namespace SF_ISA {

static void run_int_mm(const IntMm& g) { multiply_ints<MulByteTiles>(g); }
static bool supports(const IntMm& g) { return fills_byte_tiles(g.c.sizes[0], g.c.sizes[1], g.a.sizes[1]); }

}  // namespace SF_ISA

SF_KERNEL(int_mm_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_int_mm, SF_ISA::supports)

}  // namespace sf
