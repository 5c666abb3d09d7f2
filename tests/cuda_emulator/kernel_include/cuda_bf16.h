// __nv_bfloat16 for kernels from source: its conversions and its arithmetic, which rounds once per operation.
#pragma once
#include "builtins.h"

struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : bits(cuda_emulator::bfloat16_of_float(x)) {}
  operator float() const { return cuda_emulator::float_of_bfloat16(bits); }
};
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
