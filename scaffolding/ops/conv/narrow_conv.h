// A convolution of float32 with a weight that stays in 16 bits, for layers that keep theirs so. Not on the tape.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/conv/kernel.h"

namespace sf {

// conv(x, weight) + bias of x[N, C, ...] in float32 on the CPU and a contiguous weight of float16 or bfloat16, which is
// read as float32. Undefined where no kernel is for the call: widen the weight then. Nothing may require a gradient.
Tensor conv_with_narrow_weight(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvShape& shape);

}  // namespace sf
