// Settings of matrix products on a GPU. Process-wide; any thread may ask and set.
#pragma once

namespace sf {

// Whether products of float32 matrices may round their operands to TF32 (10 bits of mantissa) for the tensor cores.
// Off at first, as in torch.
bool matmul_allow_tf32();
void set_matmul_allow_tf32(bool allow);
// Whether the first product of a kind (sizes, layouts, alignments, dtypes, what follows it) times the algorithms that
// cuBLASLt proposes and keeps the fastest, in a file too; else the one it names first. Off at first.
// Another algorithm may round differently.
bool matmul_benchmark();
void set_matmul_benchmark(bool benchmark);

}  // namespace sf
