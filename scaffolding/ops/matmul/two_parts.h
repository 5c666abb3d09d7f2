// Packing an operand whose k lies in two places: x beside its low-rank projection, a weight beside the factor that
// reads it. One product then sums both in its registers. Included only by *.cpu.cpp files; everything lives in
// namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

// Values [k0, k0 + values) into a strip `width` wide: first(dst, k0, count) packs those below `split`, then(dst, k0,
// count) the others, counted from there. `split` is a multiple of K::kDepth.
template <class K, class First, class Then>
SF_INLINE void pack_two_parts(typename K::Unit* dst, int64_t width, int64_t k0, int64_t values, int64_t split,
                              const First& first, const Then& then) {
  const int64_t before = max64(0, min64(split - k0, values));
  if (before > 0) first(dst, k0, before);
  if (before < values) then(dst + before / K::kDepth * width, k0 + before - split, values - before);
}

}  // namespace SF_ISA
}  // namespace sf
