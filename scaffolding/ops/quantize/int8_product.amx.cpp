// int8 activations times weights of int8, on tiles.
#include "scaffolding/ops/quantize/int8_product.h"
#include "scaffolding/ops/int_mm/int8_tiles.h"

namespace sf {
namespace SF_ISA {

static void run_int8_linear(const Int8Linear& g) { multiply_scaled<MulByteTiles>(g); }
static void run_int8_conv(const Int8Conv& f) { convolve_scaled<MulByteTiles>(f); }

static bool supports_linear(const Int8Linear& g) { return fills_byte_tiles(g.y.sizes[0], g.y.sizes[1], g.a.sizes[1]); }
static bool supports_conv(const Int8Conv& f) {
  return fills_byte_tiles(f.y.sizes[0], f.y.sizes[1], f.weight.numel() / f.weight.sizes[0]);
}

}  // namespace SF_ISA

SF_KERNEL(int8_linear, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_int8_linear, SF_ISA::supports_linear)
SF_KERNEL(int8_conv, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_int8_conv, SF_ISA::supports_conv)

}  // namespace sf
