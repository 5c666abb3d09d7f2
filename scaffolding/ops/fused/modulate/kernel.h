// y[r, c] = base[r, c] + x[r, c] * (one + factor[b, c]) with b = r / rows_per_batch: modulate has one = 1 and base =
// shift (a row per batch, base_per_batch), gated_residual has one = 0 and base = residual (a row per token).
// x, y, base and factor share one floating dtype; x and y are contiguous [R, C],
// factor and a per-batch base have last stride 1.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {
struct ScaleRows {
  TensorView x, factor, base, y;
  bool base_per_batch = false;
  double one = 0;
  int64_t rows_per_batch = 1;
};
extern KernelTable<ScaleRows> scale_rows;
}  // namespace sf
