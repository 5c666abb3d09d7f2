// The contract of finished convolutions with the backends. Plain data; kernels never see the tape and never check.
#pragma once
#include "scaffolding/ops/conv/kernel.h"

namespace sf {

// y = scale * prelu(conv(x, weight) + bias, slopes) + residual_scale * residual + second
//
// conv as ConvForward has it, of two spatial dimensions, act None; each pixel of x is read `repeat` times in either
// direction. x, y, residual and second are channels-last or some channels of channels-last tensors; y's bytes may be
// those of residual or second.
struct FinishedConvForward {
  ConvForward conv;
  int64_t repeat = 1;
  TensorView slopes;  // [O], float32, contiguous: of negative numbers; undefined: 1
  TensorView second;  // y's shape, or undefined
  float scale = 1, residual_scale = 1;
};

extern KernelTable<FinishedConvForward> finished_conv_forward;

}  // namespace sf
