// What decoding and encoding GGUF's blocks share. Included by *.cpu.cpp files: no code that needs an instruction set.
#pragma once
#include <cstdint>

#include "scaffolding/core/half.h"
#include "scaffolding/ops/quantize/gguf_blocks.h"

namespace sf {

// The numbers of IQ4_NL's sixteen codes.
struct Iq4Codes {
  int8_t v[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
};
inline constexpr Iq4Codes kIq4;

// Of 32 numbers of a block of Q4_K and Q5_K: eight scales and eight minima of six bits in 12 bytes.
struct ScaleAndMinimum {
  int scale, minimum;
};
SF_INLINE constexpr ScaleAndMinimum scale_and_minimum(const uint8_t* p, int i) {
  return i < 4 ? ScaleAndMinimum{p[i] & 63, p[i + 4] & 63}
               : ScaleAndMinimum{(p[i + 4] & 15) | (p[i - 4] >> 6) << 4, p[i + 4] >> 4 | (p[i] >> 6) << 4};
}

// Four six-bit integers of K formats, of words or vectors of words: four bits of each byte of `low` and, from bit `at`
// of each byte of `high` on, two more.
template <class W> SF_INLINE W six_bits(W low, W high, uint32_t at) {
  return (low & 0x0f0f0f0fu) | (high >> at & 0x03030303u) << 4u;
}

}  // namespace sf
