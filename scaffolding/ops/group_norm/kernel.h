// group_norm, with SiLU fused on request: the contract with backends. x[N, C, ...] is contiguous or channels-last in
// memory, of any number of spatial dimensions (0 too); y, dy and dx have x's dtype and its layout. weight, bias and
// their gradients are [C], of any floating dtype, each optional. mean and rstd are [N, G] float32 (float64 for float64
// x), contiguous and always given. Statistics are those of shifted pieces of about 16 Ki elements, combined in double
// by Chan's rule, whatever the number of threads.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// z = (x - mean) * rstd * weight + bias;  y = silu ? z * sigmoid(z) : z
struct GroupNormForward {
  TensorView x, weight, bias;
  int64_t groups = 1;
  double eps = 1e-5;
  bool silu = false;
  TensorView y;  // may be x; undefined: only the statistics are wanted
  TensorView mean, rstd;
  // undefined, or further channels: the input is cat([x, beside], 1). All are channels-last then,
  // weight and bias of all channels
  TensorView beside;
};
// z is computed again from x: only x and the statistics need to be kept. dx may be dy or x.
struct GroupNormBackward {
  TensorView x, dy, weight, bias;
  int64_t groups = 1;
  bool silu = false;
  TensorView mean, rstd;
  TensorView dx, dweight, dbias;
};
extern KernelTable<GroupNormForward> group_norm_forward;
extern KernelTable<GroupNormBackward> group_norm_backward;

}  // namespace sf
