// int8 activations times weights of int8, on vectors.
#include "scaffolding/ops/quantize/int8_few_rows.h"

namespace sf {
namespace SF_ISA {

static void run_int8_linear(const Int8Linear& g) {
  with_int8_arithmetic([&](auto k) {
    using K = decltype(k);
    const int64_t rows = g.y.sizes[0];
    if (rows <= kDotInts) multiply_dotted_ints<K>(g);
    else if (rows <= kFewInts) multiply_int_strips<K>(g);
    else multiply_scaled<K>(g);
  });
}
static void run_int8_conv(const Int8Conv& f) {
  with_int8_arithmetic([&](auto k) { convolve_scaled<decltype(k)>(f); });
}

}  // namespace SF_ISA

SF_KERNEL(int8_linear, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_int8_linear, nullptr)
SF_KERNEL(int8_conv, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_int8_conv, nullptr)

}  // namespace sf
