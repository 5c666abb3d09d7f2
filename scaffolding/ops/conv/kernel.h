// The contract of convolution with the backends. Plain data; kernels never see the tape and never check.
//
// x[N, C, *spatial], weight[O, C / groups, *kernel], y[N, O, *out], one to three spatial dimensions; sizes are in
// torch's order whatever the memory order. Activations are channels-last in memory (fast) or contiguous; every tensor
// of a call may choose for itself. weight and dweight may have any dense layout. Arrays below hold one entry per
// spatial dimension, in the order of the sizes; entries past the last dimension are ignored. Padding is zeros,
// the same on both sides.
// All activations and weights of a call have one dtype; bias, dweight and dbias have it too, or are float32.
#pragma once
#include "scaffolding/ops/matmul/kernel.h"

namespace sf {

struct ConvShape {
  int64_t stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  int64_t groups = 1;
};

// y = act(conv(x, weight) + bias + residual)
struct ConvForward {
  TensorView x, weight;
  TensorView bias;      // [O] or undefined
  TensorView residual;  // y's shape, or undefined; not the same bytes as y
  TensorView y;
  ConvShape shape;
  Activation act = Activation::None;
  uint64_t weight_version = 0;  // as Gemm::b_version
};

// A convolution whose input is prepared on the way, so that it is never in memory as a whole: conv.x[N, C, H, W] is
// read as silu(group_norm(x)) where mean is given, and each of its pixels `repeat` times in either direction. All
// activations are channels-last; the weight may be one of NarrowConvForward's. Providers are for cases worth it.
struct PreparedConvForward {
  ConvForward conv;
  int64_t repeat = 1, groups = 1;
  TensorView mean, rstd;              // [N, groups], as group_norm's, in float32, or undefined
  TensorView norm_weight, norm_bias;  // [C], float32, contiguous
};

// conv of float32 whose weight alone is float16 or bfloat16, [O, C, *kernel] in that order in memory: it becomes
// float32 where it is read. Providers are for calls whose plain float32 convolution they would take too; others widen
// the weight before.
struct NarrowConvForward {
  ConvForward conv;
};

// dx = the gradient of x. The sizes of dx decide the output: for a transposed convolution, call this with dy = its
// input, weight[in, out / groups, *kernel] as it is stored, and dx = its output of any admissible size (output_padding
// included).
struct ConvBackwardData {
  TensorView dy, weight;
  TensorView dx;
  ConvShape shape;
  uint64_t weight_version = 0;
};

// dweight and dbias (undefined: not wanted) are overwritten.
struct ConvBackwardWeights {
  TensorView x, dy;
  TensorView dweight, dbias;
  ConvShape shape;
};

extern KernelTable<ConvForward> conv_forward;
extern KernelTable<PreparedConvForward> prepared_conv_forward;
extern KernelTable<NarrowConvForward> narrow_conv_forward;
extern KernelTable<ConvBackwardData> conv_backward_data;
extern KernelTable<ConvBackwardWeights> conv_backward_weights;

}  // namespace sf
