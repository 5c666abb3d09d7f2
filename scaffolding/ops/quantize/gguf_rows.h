// Rows of weights in GGUF's blocks, as decoders (decoded_product.h).
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/quantize/gguf_kernel.h"
#include "scaffolding/ops/quantize/word_dots.h"

namespace sf {
namespace SF_ISA {

// Rows of whole blocks.
struct GgufRows {
  const uint8_t* blocks;
  int64_t row_bytes;
  GgufDecoder f;
  GgufBlocks format;
  SF_INLINE const uint8_t* at(int64_t row, int64_t k0) const {
    return blocks + row * row_bytes + k0 / f.block * f.bytes;
  }
  SF_INLINE void decode(int64_t row, int64_t k0, int64_t count, float* to) const {
    f.decode(at(row, k0), count / f.block, to);
  }
  SF_INLINE void prefetch(int64_t row, int64_t k0, int64_t count) const {
    for (int64_t b = 0; b < count / f.block * f.bytes; b += 64) __builtin_prefetch(at(row, k0) + b, 0, 2);
  }
#if defined(__AVX512F__)
  template <class P> bool multiply_words(const P& p, const float* a, int64_t a_row) const {
    constexpr int s = kLanes / 4, n = 32 * s;
    float table[16];
    for (int i = 0; i < 16; ++i) table[i] = kIq4.v[i];
#define SF_WORDS(NAME, ...) \
  case GgufBlocks::NAME: return dot_words<WordLayout{__VA_ARGS__}>(p, a, a_row, {blocks, row_bytes, table});
    switch (format) {
      SF_WORDS(Q4_0, n, 18 * s, 4, 16, 32, 2, 8)
      SF_WORDS(Q4_1, n, 20 * s, 4, 16, 32, 4, 0, 0, 0, s)
      SF_WORDS(Q5_0, n, 22 * s, 4, 16, 32, 6, 16, 1, 2)
      SF_WORDS(Q5_1, n, 24 * s, 4, 16, 32, 8, 0, 1, 4, s)
      SF_WORDS(IQ4_NL, n, 18 * s, 4, 16, 32, 2, 0, 0, 0, 0, 0, true)
      SF_WORDS(Q8_0, 32, 34, 8, 32, 32, 2)
      SF_WORDS(Q2_K, 256, 84, 2, 32, 16, 16, 0, 0, 0, 16)
      SF_WORDS(Q3_K, 256, 110, 2, 32, 16, 32, 4, 1)
      SF_WORDS(Q4_K, 256, 144, 4, 32, 32, 16, 0, 0, 0, 8, 8)
      SF_WORDS(Q5_K, 256, 176, 4, 32, 32, 48, 0, 1, 16, 8, 8)
      SF_WORDS(Q6_K, 256, 210, 4, 64, 16, 0, 32, 2, 128)
    }
#undef SF_WORDS
    return false;
  }
#endif
};

SF_INLINE GgufRows rows_of(const GgufProduct& g) {
  return {g.blocks.as<const uint8_t>(), g.blocks.sizes[1], gguf_decoder(g.format), g.format};
}

}  // namespace SF_ISA
}  // namespace sf
