// A convolution with a residual in the same pass, for ops that are made of one. Not on the tape.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/conv/kernel.h"

namespace sf {

// conv(x, weight) + bias + residual, which has the result's shape and x's dtype. Nothing of it may require a gradient.
Tensor conv_plus_residual(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
                          const ConvShape& shape);

}  // namespace sf
