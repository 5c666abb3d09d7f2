// Settings of matrix products. Process-wide; any thread may ask and set.
#pragma once
#include <cstdint>

namespace sf {

// How exactly float32 is multiplied, under torch's names (set_float32_matmul_precision):
//   Highest   as float32 at least. On a CPU with tiles (AMX) that is three bfloat16 parts of either operand and six
//             products, whose error is below that of float32's own multiply-adds; at first.
//   High      two parts and three products, 16 bits; TF32 on a GPU.
//   Medium    bfloat16; TF32 on a GPU.
// Sums are float32 always. A CPU without tiles computes all three alike.
enum class Float32Precision : uint8_t { Highest, High, Medium };
Float32Precision float32_matmul_precision();
void set_float32_matmul_precision(Float32Precision precision);
// "highest", "high", "medium"; throws ValueError for others.
void set_float32_matmul_precision(const char* name);
const char* name_of(Float32Precision precision);

// Whether products of float32 matrices on a GPU may round their operands to TF32 (10 bits of mantissa) for the tensor
// cores: whenever the precision is not Highest. Off at first, as in torch; setting it sets High or Highest.
bool matmul_allow_tf32();
void set_matmul_allow_tf32(bool allow);
// Whether the first product of a kind (sizes, layouts, alignments, dtypes, what follows it) times the algorithms that
// cuBLASLt proposes and keeps the fastest, in a file too; else the one it names first. Off at first.
// Another algorithm may round differently.
bool matmul_benchmark();
void set_matmul_benchmark(bool benchmark);

// Where products and attention of 16-bit floats run by our own kernels for Hopper's warpgroup instructions instead of
// cuBLASLt's and cuDNN's: nowhere, where the first call of a kind finds them faster (as matmul_benchmark, and only
// while that is on), or wherever they fit. SF_CUDA_WGMMA at first: off, timed or on.
enum class WarpgroupProducts : uint8_t { Off, Timed, On };
WarpgroupProducts warpgroup_products();
void set_warpgroup_products(WarpgroupProducts where);
// The tile that they are made in, where it is not the one that counting calls the fastest: 128 x 256, 160, 128 or 80
// sums, 64 x 160 or 80; 80 where there is no gate; 1 or 2 blocks that share columns. For tests and measurements; {} at
// first.
struct WarpgroupTile {
  int rows = 0, columns = 0, cluster = 1;
};
WarpgroupTile warpgroup_tile();
void set_warpgroup_tile(WarpgroupTile tile);

}  // namespace sf
