// Fused functions of float32, bfloat16, float16 and bool on the CPU: one loop,
// a value stays in vector registers from op to op.
#pragma once
#include "scaffolding/ops/fuse/kernel.h"

namespace sf {

bool run_in_registers(const FusedCall& c);  // false: something in the program has no step

}  // namespace sf
