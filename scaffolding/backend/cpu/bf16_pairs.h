// Pairs of bfloat16 as vdpbf16ps multiplies them. Included only by *.cpu.cpp files and the headers beside them.
#pragma once
#include "scaffolding/backend/cpu/simd.h"

namespace sf {
namespace SF_ISA {

#if defined(__AVX512BF16__)
// 16 pairs (low[i], high[i]), rounded to nearest even.
SF_INLINE vf_raw join(vf low, vf high) {
  const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,  //
                                              23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return (vf_raw)_mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh((__m512)high.v, (__m512)low.v));
}
#endif

}  // namespace SF_ISA
}  // namespace sf
