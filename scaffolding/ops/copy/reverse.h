// Rows turned around: what a flip copies, elements or the pixels of a few channels.
#pragma once
#include "scaffolding/ops/copy/piece.h"

namespace sf {

// n groups of `size` bytes, at most kGroupBytes, in the opposite order. The first of `to` is the one at `from`; each
// next one lies above it in `to` and below it in `from`.
struct ReversedGroups {
  void* to;
  const void* from;
  int64_t n;
  int size;
  static constexpr int kGroupBytes = 16;
};
extern KernelTable<ReversedGroups> reverse_groups;

}  // namespace sf
