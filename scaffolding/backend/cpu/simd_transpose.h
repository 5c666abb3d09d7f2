// Rows become columns, in registers. Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/backend/cpu/simd.h"

namespace sf {
namespace SF_ISA {

// Transposes L vectors of L lanes in log2(L) rounds. One round interleaves vector i with vector i + L/2: the bits of
// (row, lane) rotate by one place, so log2(L) rounds exchange row and lane.
template <class Vec, int L> SF_INLINE Vec interleave_low(Vec a, Vec b) {
  if constexpr (L == 16) return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  else if constexpr (L == 8) return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  else if constexpr (L == 4) return __builtin_shufflevector(a, b, 0, 4, 1, 5);
  else return __builtin_shufflevector(a, b, 0, 2);
}
template <class Vec, int L> SF_INLINE Vec interleave_high(Vec a, Vec b) {
  if constexpr (L == 16)
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  else if constexpr (L == 8) return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  else if constexpr (L == 4) return __builtin_shufflevector(a, b, 2, 6, 3, 7);
  else return __builtin_shufflevector(a, b, 1, 3);
}
template <class Vec, int L> SF_INLINE void transpose(Vec (&r)[L]) {
#pragma GCC unroll 4
  for (int round = 1; round < L; round *= 2) {
    Vec t[L];
#pragma GCC unroll 8
    for (int i = 0; i < L / 2; ++i) {
      t[2 * i] = interleave_low<Vec, L>(r[i], r[i + L / 2]);
      t[2 * i + 1] = interleave_high<Vec, L>(r[i], r[i + L / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) r[i] = t[i];
  }
}

}  // namespace SF_ISA
}  // namespace sf
