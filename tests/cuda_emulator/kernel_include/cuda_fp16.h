// __half for kernels from source: its conversions and its arithmetic, which rounds once per operation.
#pragma once
#include "builtins.h"

struct __half {
  unsigned short bits;
  __half() = default;
  __half(float x) : bits(cuda_emulator::half_of_float(x)) {}
  operator float() const { return cuda_emulator::float_of_half(bits); }
};
using half = __half;
inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __hadd(__half a, __half b) { return float(a) + float(b); }
inline __half __hmul(__half a, __half b) { return float(a) * float(b); }
