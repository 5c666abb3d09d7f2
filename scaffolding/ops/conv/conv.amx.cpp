// Convolutions on tiles, of bfloat16 and of float32 in parts: matrix products whose rows are gathered while they are
// packed.
#include "scaffolding/ops/matmul/split_product.h"

#include "scaffolding/ops/conv/weight_tiles.h"

namespace sf {
namespace SF_ISA {

// Channels are padded to 32 values for each tap: fewer than half of them are not worth it.
SF_INLINE bool fills_tiles(int64_t channels) { return 2 * channels >= ceil_div(channels, 32) * 32; }

static void run_forward(const ConvForward& f) {
  if (f.x.dtype == kBFloat16) return forward<MulTiles, BFloat16>(f);
  in_parts([&](auto arithmetic, bool* rest) { forward<decltype(arithmetic), float>(f, rest); });
}
static void run_backward_data(const ConvBackwardData& f) {
  if (f.dy.dtype == kBFloat16) return backward_data<MulTiles, BFloat16>(f);
  in_parts([&](auto arithmetic, bool* rest) { backward_data<decltype(arithmetic), float>(f, rest); });
}
static void run_backward_weights(const ConvBackwardWeights& f) {
  if (f.x.dtype == kBFloat16 && WeightTiles::supports(f)) return weights_on_tiles(f);
  if (f.x.dtype == kBFloat16) return backward_weights<MulTiles, BFloat16>(f);
  in_parts([&](auto arithmetic, bool* rest) { backward_weights<decltype(arithmetic), float>(f, rest); });
}

// float32 of one tap only: of more, Winograd's algorithm does with fewer multiplications what tiles do faster.
SF_INLINE bool one_of_both(const TensorView& x, const TensorView& w) {
  if (x.dtype == kBFloat16) return true;
  for (int i = 2; i < w.ndim; ++i)
    if (w.sizes[i] != 1) return false;
  return x.dtype == kFloat32 && w.sizes[0] * w.sizes[1] >= 1 << 16;
}
static bool forward_supports(const ConvForward& f) {
  return f.x.dtype == f.weight.dtype && one_of_both(f.x, f.weight) && fills_tiles(f.weight.sizes[1]);
}
static bool backward_data_supports(const ConvBackwardData& f) {
  return f.dy.dtype == f.weight.dtype && one_of_both(f.dy, f.weight) && fills_tiles(f.weight.sizes[0] / f.shape.groups);
}
static bool backward_weights_supports(const ConvBackwardWeights& f) {
  return f.x.dtype == f.dy.dtype && one_of_both(f.x, f.dweight) && fills_tiles(f.dweight.sizes[1]);
}

}  // namespace SF_ISA

// Before Winograd's algorithm.
SF_KERNEL(conv_forward, DeviceType::CPU, "native", 28 + SF_ISA_PRIORITY, SF_ISA::run_forward, SF_ISA::forward_supports)
SF_KERNEL(conv_backward_data, DeviceType::CPU, "native", 28 + SF_ISA_PRIORITY, SF_ISA::run_backward_data,
          SF_ISA::backward_data_supports)
SF_KERNEL(conv_backward_weights, DeviceType::CPU, "native", 28 + SF_ISA_PRIORITY, SF_ISA::run_backward_weights,
          SF_ISA::backward_weights_supports)

}  // namespace sf
