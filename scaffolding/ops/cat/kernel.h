// Plain data between the ops of this folder and their kernels.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// out is rows of dense bytes; row r is in[0]'s row r, then in[1]'s, and so on. Written once, from front to back.
struct CatRows {
  void* out;
  const void* const* in;     // `count` dense tensors of `rows` rows each
  const int64_t* row_bytes;  // of each
  int64_t count, rows;
};
extern KernelTable<CatRows> cat_kernel;

// x, y: dense [batch, M, N]. Row i keeps the columns below i + diagonal + 1 (lower) or from i + diagonal on;
// the others are 0.
struct Triangle {
  TensorView y, x;
  int64_t diagonal;
  bool lower;
};
extern KernelTable<Triangle> triangle_kernel;

}  // namespace sf
