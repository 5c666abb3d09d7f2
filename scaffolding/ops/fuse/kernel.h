// What runs a traced function. result is dense in the order of its strides; inputs have their own shapes,
// which broadcast to it.
#pragma once
#include "scaffolding/ops/pointwise/trace.h"

namespace sf {

struct FusedCall {
  const pointwise::TracedProgram* program;
  TensorView out;
  const TensorView* in;  // one per argument, of out's shape (broadcast dimensions have stride 0)
};
extern KernelTable<FusedCall> fused_kernel;

}  // namespace sf
