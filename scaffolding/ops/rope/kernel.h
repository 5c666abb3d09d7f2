// Rotary position embedding (Su et al. 2021): the contract with backends. Elements of the last dimension are rotated in
// pairs (a, b) -> (a cos - b sin, b cos + a sin); `inverse` applies the transpose, which is the gradient.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// x[..., D], at most 12 dimensions, any strides but the last, which is 1; y likewise, of x's sizes and dtype;
// y may be x.
// cos and sin: as many dimensions as x, expanded to x's leading sizes (stride 0 where broadcast), last stride 1;
// float32, or float64 for float64 x. Their last size is R (one entry per element) or, with paired_tables,
// R / 2 (one per pair).
// The first R <= D elements rotate (R even), the rest are copied.
// interleaved: pairs are (0, 1), (2, 3), ... (Flux, LTX-Video, CogVideoX); else (i, i + R / 2) (Llama, GPT-NeoX).
struct RopeApply {
  TensorView x, cos, sin, y;
  bool interleaved = true;
  bool paired_tables = false;
  bool inverse = false;
};
extern KernelTable<RopeApply> rope_apply;

}  // namespace sf
