// Conversions of the toolkit's half, by those of core/half.h.
#pragma once
#include "scaffolding/core/half.h"

struct __half {
  unsigned short bits;
};
inline __half __ushort_as_half(unsigned short x) { return {x}; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline float __half2float(__half x) { return sf::to_float(sf::Half{x.bits}); }
inline __half __float2half_rn(float x) { return {sf::to_half(x).bits}; }
