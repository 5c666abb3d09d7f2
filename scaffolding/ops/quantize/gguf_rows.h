// Rows of weights in GGUF's blocks, as decoders (decoded_product.h).
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/quantize/decoded_product.h"
#include "scaffolding/ops/quantize/gguf_decode.h"
#include "scaffolding/ops/quantize/gguf_kernel.h"

namespace sf {
namespace SF_ISA {

// Rows of whole blocks.
struct GgufRows {
  const uint8_t* blocks;
  int64_t row_bytes;
  GgufDecoder f;
  SF_INLINE const uint8_t* at(int64_t row, int64_t k0) const {
    return blocks + row * row_bytes + k0 / f.block * f.bytes;
  }
  SF_INLINE void decode(int64_t row, int64_t k0, int64_t count, float* to) const {
    f.decode(at(row, k0), count / f.block, to);
  }
  SF_INLINE void prefetch(int64_t row, int64_t k0, int64_t count) const {
    for (int64_t b = 0; b < count / f.block * f.bytes; b += 64) __builtin_prefetch(at(row, k0) + b, 0, 2);
  }
};

SF_INLINE GgufRows rows_of(const GgufProduct& g) {
  return {g.blocks.as<const uint8_t>(), g.blocks.sizes[1], gguf_decoder(g.format)};
}

}  // namespace SF_ISA
}  // namespace sf
