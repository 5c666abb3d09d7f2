// Conversions of the toolkit's bfloat16, by those of core/half.h.
#pragma once
#include "scaffolding/core/half.h"

struct __nv_bfloat16 {
  unsigned short bits;
};
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return {x}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline float __bfloat162float(__nv_bfloat16 x) { return sf::to_float(sf::BFloat16{x.bits}); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {sf::to_bfloat16(x).bits}; }
