// Making GGUF's blocks on the CPU, once for each weight: plain loops, no instruction sets.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "scaffolding/core/half.h"
#include "scaffolding/ops/quantize/gguf_blocks.h"

namespace sf {

// Writes the blocks of n numbers, which are whole blocks. False where one is not finite, or a scale is none in float16.
bool encode_gguf(GgufBlocks format, const float* x, int64_t n, uint8_t* blocks);

inline void put_half(uint8_t* p, float x) {
  const Half h = from_float<Half>(x);
  std::memcpy(p, &h, 2);
}
// 1 / x; 0 where that is none.
inline float inverse_or_0(float x) {
  const float i = x == 0 ? 0 : 1 / x;
  return std::isfinite(i) ? i : 0;
}

// One block each, of gguf_encode.cpp and gguf_encode_k.cpp.
#define SF_GGUF_PLAIN(NAME, id, bytes, dtype)
#define SF_GGUF_UNREAD(NAME, id, block, bytes)
#define SF_GGUF_BLOCKS(NAME, id, block, bytes) void encode_##NAME(const float* x, uint8_t* b);
#include "scaffolding/ops/quantize/gguf_formats.def"

}  // namespace sf
