// Rotary position embedding.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// Rotates the first cos.size(-1) elements of input[..., D] in pairs by the angles whose cosines and sines are given;
// the rest is copied. cos and sin broadcast to input's leading sizes. interleaved: pairs (0, 1), (2, 3), ... (Flux,
// CogVideoX);
// otherwise (i, i + R / 2) (Llama). Tables have one entry per element (both of a pair equal),
// as diffusers' and transformers'.
Tensor apply_rotary_emb(const Tensor& input, const Tensor& cos, const Tensor& sin, bool interleaved = true);

}  // namespace sf
