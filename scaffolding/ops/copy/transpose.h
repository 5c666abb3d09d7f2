// Rows that become columns, for kernels that meet a tensor lying across their own rows: copies between layouts and
// pointwise ops of a contiguous tensor and a channels-last one.
#pragma once
#include "scaffolding/ops/copy/piece.h"

namespace sf {

// to[r][c] = from[c][r]: elements of `item` bytes (1, 2, 4 or 8), dense along c in `to` and along r in `from`; rows of
// `to` are to_row bytes apart, those of `from` from_row bytes.
struct TransposedTiles {
  void* to;
  const void* from;
  int64_t to_row, from_row, rows, cols;
  int item;
};
extern KernelTable<TransposedTiles> transpose_tiles;

}  // namespace sf
