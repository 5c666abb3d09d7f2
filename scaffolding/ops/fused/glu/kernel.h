// Gated linear units (GEGLU, SwiGLU): the contract with backends. y = hidden * act(gate), elementwise.
// hidden and gate are [R, C] views with last stride 1 and any row stride: either half of one projection [R, 2C]
// (diffusers' GEGLU: hidden first, gate second; other models: gate first) or two tensors. Which half is the gate is
// thus decided by the views. One floating dtype for all; y, dy are contiguous [R, C] or have a row stride too.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

enum class GluActivation : uint8_t { Gelu, GeluTanh, Silu, Sigmoid, Relu };

struct GluForward {
  TensorView hidden, gate;  // 2 dimensions
  GluActivation act = GluActivation::Gelu;
  TensorView y;  // may be hidden or gate
};
// dhidden = dy * act(gate);  dgate = dy * hidden * act'(gate). dhidden and dgate are views as hidden and gate are (the
// halves of one [R, 2C] gradient, say) and may be hidden and gate themselves.
struct GluBackward {
  TensorView hidden, gate, dy;
  GluActivation act = GluActivation::Gelu;
  TensorView dhidden, dgate;
};
extern KernelTable<GluForward> glu_forward;
extern KernelTable<GluBackward> glu_backward;

}  // namespace sf
