// Convolutions whose result is finished on its way into memory that is there: some channels of a wider picture, behind
// an activation, a scale and residuals. Not ops: no tape sees the writes.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

struct ConvFinish {
  Tensor slopes;  // [O], float32: of negative numbers, as prelu's; absent: 1
  double scale = 1;
  Tensor residual;  // y's shape, or absent
  double residual_scale = 1;
  Tensor second;       // y's shape, or absent
  int64_t repeat = 1;  // of each pixel of input, in either direction
};

// y = scale * prelu(conv2d(input, weight, bias, padding=1), slopes) + residual_scale * residual + second, for a weight
// [O, C, 3, 3]. input, y and the residuals may be some channels of channels-last tensors. y may be a residual, and must
// not be input. False, and nothing is written, where no kernel does that in one or a gradient is wanted.
bool conv2d_finished_into(const Tensor& y, const Tensor& input, const Tensor& weight, const Tensor& bias,
                          const ConvFinish& finish = {});

}  // namespace sf
