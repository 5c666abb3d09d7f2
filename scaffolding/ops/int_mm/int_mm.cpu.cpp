// Products of int8 on vectors: every stride, every instruction set.
#include "scaffolding/ops/int_mm/int8_dots.h"
#include "scaffolding/ops/int_mm/int_mm_calls.h"

namespace sf {
namespace SF_ISA {

static void run_int_mm(const IntMm& g) {
  with_int8_arithmetic([&](auto k) { multiply_ints<decltype(k)>(g); });
}

}  // namespace SF_ISA

SF_KERNEL(int_mm_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_int_mm, nullptr)

}  // namespace sf
