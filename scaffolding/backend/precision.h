// What float32 products may give up for speed on a GPU. Process-wide; any thread may ask and set.
#pragma once

namespace sf {

// Whether products of float32 matrices may round their operands to TF32 (10 bits of mantissa) for the tensor cores. Off at first, as in torch.
bool matmul_allow_tf32();
void set_matmul_allow_tf32(bool allow);

}  // namespace sf
