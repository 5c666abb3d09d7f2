// What the blocks of GGUF's formats mean (ggml-quants.c, dequantize_row_*): small integers times scales, which the K
// formats store as integers themselves. Sixteen integers of eight bits are put together at once and become floats last.
// A product of a scale and an integer has at most 24 bits, so that a fused multiply-add rounds as two steps do, and
// every instruction set gives the bits of the gguf package.
//
// decode_<name>(block, y) says where a format's numbers are: put(y + i, q, scale, minimum) of the sixteen from i on,
// which are q * scale - minimum.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/ops/quantize/gguf_codes.h"

namespace sf {
namespace SF_ISA {

typedef uint8_t U8x16 __attribute__((vector_size(16)));
typedef int8_t I8x16 __attribute__((vector_size(16)));

SF_INLINE static U8x16 bytes_at(const uint8_t* p) {
  U8x16 v;
  __builtin_memcpy(&v, p, 16);
  return v;
}
SF_INLINE static float half_at(const uint8_t* p) {
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
#if defined(__F16C__)
  return _cvtsh_ss(bits);
#else
  return to_float(Half{bits});
#endif
}

// y[0 .. 16) = q * scale - minimum
SF_INLINE static void put(float* y, I8x16 q, float scale, float minimum = 0) {
#if defined(__AVX512F__)
  const __m512 x = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32((__m128i)q));
  _mm512_storeu_ps(y, _mm512_fmsub_ps(x, _mm512_set1_ps(scale), _mm512_set1_ps(minimum)));
#elif defined(__AVX2__)
  const __m256 s = _mm256_set1_ps(scale), m = _mm256_set1_ps(minimum);
  const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32((__m128i)q)),
               high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64((__m128i)q, (__m128i)q)));
  _mm256_storeu_ps(y, _mm256_fmsub_ps(low, s, m));
  _mm256_storeu_ps(y + 8, _mm256_fmsub_ps(high, s, m));
#else
  for (int j = 0; j < 16; ++j) y[j] = float(int(q[j])) * scale - minimum;
#endif
}
// The bits of `mask` from bit `at` of each byte on. There is no shift of bytes: what the mask takes came from no other.
SF_INLINE static U8x16 bits_of(U8x16 x, int at, uint8_t mask) {
  typedef uint16_t U16x8 __attribute__((vector_size(16)));
  return (U8x16)((U16x8)x >> uint16_t(at)) & mask;
}

// ---- 32 numbers. Number j is the low half of byte j, number j + 16 the high half.

SF_INLINE static void decode_Q4_0(const uint8_t* b, float* y) {  // half d; 16 bytes
  const float d = half_at(b);
  const U8x16 q = bytes_at(b + 2);
  put(y, (I8x16)(q & 15) - 8, d);
  put(y + 16, (I8x16)bits_of(q, 4, 15) - 8, d);
}
SF_INLINE static void decode_Q4_1(const uint8_t* b, float* y) {  // half d, m; 16 bytes
  const float d = half_at(b), m = half_at(b + 2);
  const U8x16 q = bytes_at(b + 4);
  put(y, (I8x16)(q & 15), d, -m);
  put(y + 16, (I8x16)bits_of(q, 4, 15), d, -m);
}
// 16 where a bit is 1: of 16 numbers, number j's in bit j of a word.
SF_INLINE static U8x16 fifth_bits(const uint8_t* word) {
  typedef uint16_t U16x8 __attribute__((vector_size(16)));
  uint16_t both;
  __builtin_memcpy(&both, word, 2);
  const U8x16 half = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
              bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const U8x16 bytes = __builtin_shuffle((U8x16)(both - U16x8{}), half);
  return (U8x16)((bytes & bit) == bit) & 16;
}
SF_INLINE static void decode_Q5_0(const uint8_t* b, float* y) {  // half d; 32 fifth bits; 16 bytes
  const float d = half_at(b);
  const U8x16 q = bytes_at(b + 6);
  put(y, (I8x16)((q & 15) | fifth_bits(b + 2)) - 16, d);
  put(y + 16, (I8x16)(bits_of(q, 4, 15) | fifth_bits(b + 4)) - 16, d);
}
SF_INLINE static void decode_Q5_1(const uint8_t* b, float* y) {  // half d, m; 32 fifth bits; 16 bytes
  const float d = half_at(b), m = half_at(b + 2);
  const U8x16 q = bytes_at(b + 8);
  put(y, (I8x16)((q & 15) | fifth_bits(b + 4)), d, -m);
  put(y + 16, (I8x16)(bits_of(q, 4, 15) | fifth_bits(b + 6)), d, -m);
}
SF_INLINE static void decode_Q8_0(const uint8_t* b, float* y) {  // half d; 32 signed bytes
  const float d = half_at(b);
  put(y, (I8x16)bytes_at(b + 2), d);
  put(y + 16, (I8x16)bytes_at(b + 18), d);
}
SF_INLINE static void decode_IQ4_NL(const uint8_t* b, float* y) {  // half d; 16 bytes of places in a table
  const float d = half_at(b);
  const U8x16 q = bytes_at(b + 2);
  I8x16 table;
  __builtin_memcpy(&table, kIq4.v, 16);
  put(y, __builtin_shuffle(table, (I8x16)(q & 15)), d);
  put(y + 16, __builtin_shuffle(table, (I8x16)bits_of(q, 4, 15)), d);
}

// ---- 256 numbers: scales and minima are floats for all, times small integers, which become floats first of all.

// 16 bytes of scale and minimum, 4 bits each; 64 bytes; half d, dmin
SF_INLINE static void scales_Q2_K(const uint8_t* b, float* scales, float* minima) {
  put(scales, (I8x16)(bytes_at(b) & 15), half_at(b + 80));
  put(minima, (I8x16)bits_of(bytes_at(b), 4, 15), half_at(b + 82));
}
SF_INLINE static void decode_Q2_K(const uint8_t* b, float* y) {
  alignas(64) float scales[16], minima[16];
  scales_Q2_K(b, scales, minima);
#pragma GCC unroll 16
  for (int part = 0; part < 16; ++part) {
    const U8x16 q = bytes_at(b + 16 + 32 * (part / 8) + 16 * (part % 2));
    put(y + 16 * part, (I8x16)bits_of(q, 2 * (part % 8 / 2), 3), scales[part], minima[part]);
  }
}
SF_INLINE static uint32_t word_at(const uint8_t* p) {
  uint32_t w;
  __builtin_memcpy(&w, p, 4);
  return w;
}
// 32 bytes of third bits; 64 bytes; 12 bytes of sixteen 6-bit scales; half d
SF_INLINE static void scales_Q3_K(const uint8_t* b, float* scales, float*) {
  typedef uint32_t U32x4 __attribute__((vector_size(16)));
  const uint32_t first = word_at(b + 96), second = word_at(b + 100), high = word_at(b + 104);
  const U32x4 packed = {six_bits(first, high, 0), six_bits(second, high, 2), six_bits(first >> 4, high, 4),
                        six_bits(second >> 4, high, 6)};
  put(scales, (I8x16)packed - 32, half_at(b + 108));
}
SF_INLINE static void decode_Q3_K(const uint8_t* b, float* y) {
  alignas(64) float scales[16];
  scales_Q3_K(b, scales, nullptr);
#pragma GCC unroll 16
  for (int part = 0; part < 16; ++part) {
    const U8x16 q = bytes_at(b + 32 + 32 * (part / 8) + 16 * (part % 2)), high_bits = bytes_at(b + 16 * (part % 2));
    const U8x16 third = bits_of(high_bits, part / 2, 1) << 2;
    put(y + 16 * part, (I8x16)(bits_of(q, 2 * (part % 8 / 2), 3) | third) - 4, scales[part]);
  }
}
// Of Q4_K and Q5_K: half d, dmin; 12 bytes of eight scales and eight minima (scale_and_minimum()). minima[8 ..].
SF_INLINE static void six_bit_scales(const uint8_t* b, float* scales, float* minima) {
  typedef uint64_t U64x2 __attribute__((vector_size(16)));
  const uint32_t s = word_at(b + 4), m = word_at(b + 8), low = word_at(b + 12);
  const U64x2 packed = {(s & 0x3f3f3f3fu) | uint64_t(six_bits(low, s, 6)) << 32,
                        (m & 0x3f3f3f3fu) | uint64_t(six_bits(low >> 4, m, 6)) << 32};
  put(scales, (I8x16)packed, half_at(b));
  put(minima, (I8x16)packed, half_at(b + 2));
}
// half d, dmin; 12 bytes of scales; 128 bytes
SF_INLINE static void decode_Q4_K(const uint8_t* b, float* y) {
  alignas(64) float scales[16], minima[16];
  six_bit_scales(b, scales, minima);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    for (int half = 0; half < 2; ++half) {
      const U8x16 q = bytes_at(b + 16 + 32 * (i / 2) + 16 * half);
      put(y + 32 * i + 16 * half, (I8x16)bits_of(q, i % 2 * 4, 15), scales[i], minima[8 + i]);
    }
}
// half d, dmin; 12 bytes of scales; 32 bytes of fifth bits; 128 bytes
SF_INLINE static void decode_Q5_K(const uint8_t* b, float* y) {
  alignas(64) float scales[16], minima[16];
  six_bit_scales(b, scales, minima);
  const U8x16 high[2] = {bytes_at(b + 16), bytes_at(b + 32)};
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    for (int half = 0; half < 2; ++half) {
      const U8x16 q = bytes_at(b + 48 + 32 * (i / 2) + 16 * half);
      put(y + 32 * i + 16 * half, (I8x16)(bits_of(q, i % 2 * 4, 15) | bits_of(high[half], i, 1) << 4), scales[i],
          minima[8 + i]);
    }
}
// 128 bytes of low bits; 64 of high bits; 16 signed scales; half d
SF_INLINE static void scales_Q6_K(const uint8_t* b, float* scales, float*) {
  put(scales, (I8x16)bytes_at(b + 192), half_at(b + 208));
}
SF_INLINE static void decode_Q6_K(const uint8_t* b, float* y) {
  alignas(64) float scales[16];
  scales_Q6_K(b, scales, nullptr);
#pragma GCC unroll 16
  for (int part = 0; part < 16; ++part) {
    const int half = part / 8, quarter = part % 8 / 2, at = 16 * (part % 2);
    const U8x16 low = bytes_at(b + 64 * half + 32 * (quarter % 2) + at), high = bytes_at(b + 128 + 32 * half + at);
    put(y + 16 * part, (I8x16)(bits_of(low, quarter / 2 * 4, 15) | bits_of(high, 2 * quarter, 3) << 4) - 32,
        scales[part]);
  }
}

// A format as kernels see it.
struct GgufDecoder {
  int64_t block, bytes;
  void (*decode)(const uint8_t* from, int64_t blocks, float* to);
};
#define SF_GGUF_PLAIN(NAME, id, bytes, dtype)
#define SF_GGUF_UNREAD(NAME, id, block, bytes)
#define SF_GGUF_BLOCKS(NAME, id, block, bytes)                                                            \
  [[gnu::noinline]] static void decode_blocks_of_##NAME(const uint8_t* from, int64_t blocks, float* to) { \
    for (int64_t i = 0; i < blocks; ++i) decode_##NAME(from + i * bytes, to + i * block);                 \
  }
#include "scaffolding/ops/quantize/gguf_formats.def"

SF_INLINE static GgufDecoder gguf_decoder(GgufBlocks format) {
  switch (format) {
#define SF_GGUF_PLAIN(NAME, id, bytes, dtype)
#define SF_GGUF_UNREAD(NAME, id, block, bytes)
#define SF_GGUF_BLOCKS(NAME, id, block, bytes) \
  case GgufBlocks::NAME:                       \
    return {block, bytes, decode_blocks_of_##NAME};
#include "scaffolding/ops/quantize/gguf_formats.def"
  }
  return {};
}

}  // namespace SF_ISA
}  // namespace sf
