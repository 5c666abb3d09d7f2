// Products with weights in codes of four and eight bits.
#include "scaffolding/ops/quantize/coded_rows.h"

namespace sf {
namespace SF_ISA {

static void run_coded_product(const CodedProduct& p) {
  visit_rows(p, [&](const auto& rows) { multiply_any(p, rows); });
}

}  // namespace SF_ISA

SF_KERNEL(coded_product, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_coded_product, nullptr)

}  // namespace sf
