// Convolutions by our own matrix product: every dtype, one to three dimensions, groups, dilation, any layout.
#include "scaffolding/backend/cpu/bf16_dot.h"
#include "scaffolding/ops/conv/conv_calls.h"

namespace sf {
namespace SF_ISA {

#if defined(__AVX512BF16__)
#define SF_BFLOAT16_PRODUCT(call) (cpu::bf16_dot_pays() ? call<MulBF16, BFloat16>(f) : call<MulF32, BFloat16>(f))
#else
#define SF_BFLOAT16_PRODUCT(call) (call<MulF32, BFloat16>(f))
#endif
#define SF_BY_DTYPE(name, Args, tensor)                 \
  static void name##_any(const Args& f) {               \
    switch (f.tensor.dtype) {                           \
      case kFloat64: return name<MulF64, double>(f);    \
      case kFloat16: return name<MulF32, Half>(f);      \
      case kBFloat16: return SF_BFLOAT16_PRODUCT(name); \
      default: return name<MulF32, float>(f);           \
    }                                                   \
  }                                                     \
  static bool name##_supports(const Args& f) { return is_floating(f.tensor.dtype) && !is_float8(f.tensor.dtype); }
SF_BY_DTYPE(forward, ConvForward, x)
SF_BY_DTYPE(backward_data, ConvBackwardData, dy)
SF_BY_DTYPE(backward_weights, ConvBackwardWeights, x)
#undef SF_BY_DTYPE
#undef SF_BFLOAT16_PRODUCT

static void narrow_forward(const NarrowConvForward& f) { forward<MulF32, float>(f.conv); }
// Of few pixels: reading the weight is most of it.
static bool narrow_supports(const NarrowConvForward& f) {
  const ConvForward& c = f.conv;
  return taps_together(c.weight) > 0 && c.y.numel() <= 256 * c.weight.sizes[0];
}

}  // namespace SF_ISA

SF_KERNEL(narrow_conv_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::narrow_forward,
          SF_ISA::narrow_supports)
SF_KERNEL(conv_forward, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::forward_any, SF_ISA::forward_supports)
SF_KERNEL(conv_backward_data, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::backward_data_any,
          SF_ISA::backward_data_supports)
SF_KERNEL(conv_backward_weights, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::backward_weights_any,
          SF_ISA::backward_weights_supports)

}  // namespace sf
