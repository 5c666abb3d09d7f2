// Strips of GGUF's blocks for products with int8 activations: the blocks of kStripCols columns, rows of the weight,
// whose integers lie side by side in vectors. Fours of four bytes are turned as they are in the file, and become
// integers afterwards, those of all columns at once; what they mean is decode_<name>'s (gguf_decode.h).
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/int_mm/int8_lines.h"
#include "scaffolding/ops/quantize/gguf_codes.h"

namespace sf {
namespace SF_ISA {

constexpr int kStripVecs = 2, kStripCols = kStripVecs * kLanes;
constexpr int kDeep = 256;  // numbers of a column that are packed together: a K format's block, or eight of the others

typedef int32_t Ints __attribute__((vector_size(kVecBytes)));
typedef int16_t Shorts __attribute__((vector_size(kVecBytes)));

// ---- What sums of products are made of: how integers lie and what they are multiplied by.

struct WideCodes {  // of eight bits; a scale for each 32
  static constexpr int kPerLane = 2, kScales = 8, kWhole = 0;
  static constexpr bool kMinimum = false, kDots = false;
};
template <bool kMin> struct NarrowCodes {  // of up to five bits; a scale, and perhaps a minimum, for each 32
  static constexpr int kPerLane = 4, kScales = 8, kWhole = 0, kFours = 4;
  static constexpr bool kMinimum = kMin, kDots = false;
};
// Whole scales for each kEach fours, and floats for 256. Products of kFours fours of codes fit 16 bits.
template <int kFoursThatFit, bool kMin, int kFoursOfAScale = 4> struct SuperCodes {
  static constexpr int kPerLane = 4, kScales = 1, kWhole = 16, kFours = kFoursThatFit, kEach = kFoursOfAScale;
  static constexpr bool kMinimum = kMin, kDots = false;
};
// The same where fours are multiplied at once: what has eight bits is made positive there too.
template <class F> struct Dotted : F {
  static constexpr int kPerLane = 4;
  static constexpr bool kDots = true;
};

// kDeep numbers of each column of a strip.
template <class F> struct alignas(64) StripPart {
  uint32_t codes[kDeep / F::kPerLane][kStripCols];
  // Pairs of 16 bits: a scale twice; of 16 numbers and the next ones, what the sums of their activations are times.
  uint32_t scales[F::kWhole + 1][kStripCols], minima[F::kWhole / 2 + 1][kStripCols];
  float scale[F::kScales][kStripCols], minimum[F::kMinimum ? F::kScales : 1][kStripCols];
};

// ---- Columns side by side

// What of kLanes columns is at `at` of rows[0 ..].
using Columns = const uint8_t* const*;

// The word at `at`. As instructions: g++ 12 makes a chain of sixteen masked broadcasts.
#if defined(__AVX2__)
SF_INLINE __m128i four_words(Columns rows, int64_t at) {
  __m128i w = _mm_cvtsi32_si128(vector_at<int32_t>(rows[0] + at));
  w = _mm_insert_epi32(w, vector_at<int32_t>(rows[1] + at), 1);
  w = _mm_insert_epi32(w, vector_at<int32_t>(rows[2] + at), 2);
  return _mm_insert_epi32(w, vector_at<int32_t>(rows[3] + at), 3);
}
#endif
SF_INLINE Fours word(Columns rows, int64_t at) {
#if defined(__AVX512F__)
  __m512i w = _mm512_castsi128_si512(four_words(rows, at));
  w = _mm512_inserti32x4(w, four_words(rows + 4, at), 1);
  w = _mm512_inserti32x4(w, four_words(rows + 8, at), 2);
  return (Fours)_mm512_inserti32x4(w, four_words(rows + 12, at), 3);
#elif defined(__AVX2__)
  return (Fours)_mm256_inserti128_si256(_mm256_castsi128_si256(four_words(rows, at)), four_words(rows + 4, at), 1);
#else
  Fours w;
  for (int c = 0; c < kLanes; ++c) w[c] = vector_at<uint32_t>(rows[c] + at);
  return w;
#endif
}

// The float16 in the low half of each word.
SF_INLINE vf half_floats(Fours w) {
#if defined(__AVX512F__)
  return (vf_raw)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)w));
#elif defined(__F16C__) && defined(__AVX2__)
  const __m256i halves = _mm256_and_si256((__m256i)w, _mm256_set1_epi32(0xffff)),
                packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0x08);
  return (vf_raw)_mm256_cvtph_ps(_mm256_castsi256_si128(packed));
#else
  vf_raw y;
  for (int c = 0; c < kLanes; ++c) y[c] = to_float(Half{uint16_t(w[c])});
  return y;
#endif
}
SF_INLINE Fours numbers_of_iq4(Fours places) {
#if defined(__AVX512BW__)
  const __m128i table = _mm_loadu_si128((const __m128i*)kIq4.v);
  return (Fours)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), (__m512i)places);
#elif defined(__AVX2__)
  const __m128i table = _mm_loadu_si128((const __m128i*)kIq4.v);
  return (Fours)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), (__m256i)places);
#else
  typedef int8_t Table __attribute__((vector_size(16)));
  Table table;  // a constant of this file: kIq4 itself would be one for all instruction sets
  __builtin_memcpy(&table, kIq4.v, 16);
  Fours y = {};
  for (int c = 0; c < kLanes; ++c)
    for (int i = 0; i < 32; i += 8) y[c] |= uint32_t(uint8_t(table[places[c] >> i & 15])) << i;
  return y;
#endif
}

constexpr uint32_t kEachByte = 0x01010101;

// Where kLanes columns of a strip go.
template <class F> struct StripColumns {
  StripPart<F>& to;
  int first;
  SF_INLINE void put(uint32_t* row, Fours w) const { __builtin_memcpy(row + first, &w, sizeof w); }
  SF_INLINE void put(float* row, vf x) const { __builtin_memcpy(row + first, &x.v, sizeof x.v); }

  // Numbers 4 four .. 4 four + 3 in bytes.
  SF_INLINE void codes(int four, Fours w) const {
    if constexpr (F::kPerLane == 4) return put(to.codes[four], w);
    const Fours even = (Fours)((Shorts)(w << 8) >> 8), odd = (Fours)((Shorts)w >> 8);
    put(to.codes[2 * four], (even & 0xffff) | odd << 16);
    put(to.codes[2 * four + 1], even >> 16 | (odd & 0xffff0000));
  }
  // Of signed bytes: as they are, or 128 more, where bytes have no sign.
  SF_INLINE void signed_codes(int four, Fours w) const { codes(four, F::kDots ? w ^ 0x80 * kEachByte : w); }
  SF_INLINE void scale(int block, Fours half) const { put(to.scale[block], half_floats(half)); }
  SF_INLINE void minimum(int block, Fours half) const { put(to.minimum[block], half_floats(half)); }
  // Of sixteen numbers each that begin with 16 part: four scales, and what the sums of their activations are times.
  SF_INLINE void scales(int part, const Fours (&s)[4], const Fours (&m)[4]) const {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) put(to.scales[part + i], (s[i] & 0xffff) | s[i] << 16);
    put(to.minima[part / 2], (m[0] & 0xffff) | m[1] << 16);
    put(to.minima[part / 2 + 1], (m[2] & 0xffff) | m[3] << 16);
  }
};
// Number i of four in bytes.
SF_INLINE Fours byte_of(Fours w, int i) { return w >> uint32_t(8 * i) & 255; }
SF_INLINE Fours signed_byte_of(Fours w, int i) { return (Fours)((Ints)(w << uint32_t(24 - 8 * i)) >> 24); }

// ---- Formats. pack() takes the block that is at `at` of each row, which is the strip part's block b; kOffset made its
// integers positive.

template <int kNumbers, int kBytesOfThem, class K, int kAdded = 0> struct StripFormat {
  static constexpr int64_t kBlock = kNumbers, kBytes = kBytesOfThem;
  using Kind = K;
  static constexpr int kOffset = kAdded;
};

// 16 bytes: put(i, four i), of 32 numbers.
template <class Put> SF_INLINE void nibbles(Columns rows, int64_t at, const Put& put) {
  Fours w[4];
  sixteen(rows, at, w);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) put(i, w[i] & 15 * kEachByte), put(4 + i, w[i] >> 4 & 15 * kEachByte);
}
// 16 in byte i where bit `at` + i is 1.
SF_INLINE Fours fifth_bits_of(Fours bits, int at) {
  return ((bits >> uint32_t(at) & 15) * 0x00204081u & kEachByte) << 4;
}

struct StripQ8_0 : StripFormat<32, 34, WideCodes> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int b, const StripColumns<F>& to) {
    to.scale(b, word(rows, at));
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Fours w[4];
      sixteen(rows, at + 2 + 16 * half, w);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) to.signed_codes(8 * b + 4 * half + i, w[i]);
    }
  }
};
struct StripIQ4_NL : StripFormat<32, 18, WideCodes> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int b, const StripColumns<F>& to) {
    to.scale(b, word(rows, at));
    nibbles(rows, at + 2, [&](int i, Fours q) { to.signed_codes(8 * b + i, numbers_of_iq4(q)); });
  }
};
struct StripQ4_0 : StripFormat<32, 18, NarrowCodes<false>, 8> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int b, const StripColumns<F>& to) {
    to.scale(b, word(rows, at));
    nibbles(rows, at + 2, [&](int i, Fours q) { to.codes(8 * b + i, q); });
  }
};
struct StripQ5_0 : StripFormat<32, 22, NarrowCodes<false>, 16> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int b, const StripColumns<F>& to) {
    to.scale(b, word(rows, at));
    const Fours high = word(rows, at + 2);
    nibbles(rows, at + 6, [&](int i, Fours q) { to.codes(8 * b + i, q | fifth_bits_of(high, 4 * i)); });
  }
};
// What a minimum is subtracted from is q * scale - minimum: here the file's is added.
constexpr uint32_t kHalfSign = 0x8000;
struct StripQ4_1 : StripFormat<32, 20, NarrowCodes<true>> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int b, const StripColumns<F>& to) {
    const Fours both = word(rows, at);
    to.scale(b, both), to.minimum(b, both >> 16 ^ kHalfSign);
    nibbles(rows, at + 4, [&](int i, Fours q) { to.codes(8 * b + i, q); });
  }
};
struct StripQ5_1 : StripFormat<32, 24, NarrowCodes<true>> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int b, const StripColumns<F>& to) {
    const Fours both = word(rows, at), high = word(rows, at + 4);
    to.scale(b, both), to.minimum(b, both >> 16 ^ kHalfSign);
    nibbles(rows, at + 8, [&](int i, Fours q) { to.codes(8 * b + i, q | fifth_bits_of(high, 4 * i)); });
  }
};

struct StripQ2_K : StripFormat<256, 84, SuperCodes<4, true>> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int, const StripColumns<F>& to) {
    const Fours both = word(rows, at + 80);
    to.scale(0, both), to.minimum(0, both >> 16);
    Fours packed[4], w[4], s[4], m[4];
    sixteen(rows, at, packed);
    for (int four = 0; four < 4; ++four) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) s[i] = byte_of(packed[four], i) & 15, m[i] = byte_of(packed[four], i) >> 4;
      to.scales(4 * four, s, m);
    }
    for (int some = 0; some < 4; ++some) {  // 128 numbers, of these every other sixteen
      sixteen(rows, at + 16 + 16 * some, w);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        to.codes(32 * (some / 2) + 8 * (i / 4) + 4 * (some % 2) + i % 4,
                 w[i % 4] >> uint32_t(i / 4 * 2) & 3 * kEachByte);
    }
  }
};
struct StripQ3_K : StripFormat<256, 110, SuperCodes<4, false>, 4> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int, const StripColumns<F>& to) {
    to.scale(0, word(rows, at + 106) >> 16);
    Fours packed[4], w[4], high[4], s[4], m[4];
    sixteen(rows, at + 92, packed);  // 12 bytes from the second word on
    for (int four = 0; four < 4; ++four) {
      const Fours all = six_bits(packed[1 + four % 2] >> uint32_t(four / 2 * 4), packed[3], uint32_t(2 * four));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) s[i] = byte_of(all, i) - 32, m[i] = s[i] * uint32_t(kOffset);
      to.scales(4 * four, s, m);
    }
    for (int odd = 0; odd < 2; ++odd) {
      sixteen(rows, at + 16 * odd, high);
      for (int half = 0; half < 2; ++half) {
        sixteen(rows, at + 32 + 32 * half + 16 * odd, w);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          to.codes(32 * half + 8 * (i / 4) + 4 * odd + i % 4,
                   (w[i % 4] >> uint32_t(i / 4 * 2) & 3 * kEachByte) |
                       (high[i % 4] >> uint32_t(4 * half + i / 4) & kEachByte) << 2);
      }
    }
  }
};
// Eight scales and minima of six bits in the last three of four words (scale_and_minimum()); two halves in the first.
template <class F> SF_INLINE void six_bit_scales(const Fours (&packed)[4], const StripColumns<F>& to) {
  to.scale(0, packed[0]), to.minimum(0, packed[0] >> 16);
  const Fours s = packed[1], m = packed[2], low = packed[3];
  const Fours scales[2] = {s & 63 * kEachByte, six_bits(low, s, 6)},
              minima[2] = {m & 63 * kEachByte, six_bits(low >> 4, m, 6)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Fours a = byte_of(scales[i / 2], i % 2 * 2), b = byte_of(scales[i / 2], i % 2 * 2 + 1),
                c = byte_of(minima[i / 2], i % 2 * 2), d = byte_of(minima[i / 2], i % 2 * 2 + 1);
    to.scales(4 * i, {a, a, b, b}, {c, c, d, d});
  }
}
struct StripQ4_K : StripFormat<256, 144, SuperCodes<4, true, 8>> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int, const StripColumns<F>& to) {
    Fours packed[4];
    sixteen(rows, at, packed);
    six_bit_scales(packed, to);
    for (int some = 0; some < 8; ++some)  // sixteen numbers, and those 32 further on
      nibbles(rows, at + 16 + 16 * some,
              [&](int i, Fours q) { to.codes(16 * (some / 2) + 4 * (some % 2) + (i < 4 ? i : 4 + i), q); });
  }
};
struct StripQ5_K : StripFormat<256, 176, SuperCodes<4, true, 8>> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int, const StripColumns<F>& to) {
    Fours packed[4], high[4];
    sixteen(rows, at, packed);
    six_bit_scales(packed, to);
    for (int odd = 0; odd < 2; ++odd) {
      sixteen(rows, at + 16 + 16 * odd, high);
      for (int some = 0; some < 4; ++some)
        nibbles(rows, at + 48 + 32 * some + 16 * odd, [&](int i, Fours q) {
          to.codes(16 * some + 4 * odd + (i < 4 ? i : 4 + i),
                   q | (high[i % 4] >> uint32_t(2 * some + i / 4) & kEachByte) << 4);
        });
    }
  }
};
struct StripQ6_K : StripFormat<256, 210, SuperCodes<2, false>, 32> {
  template <class F> SF_INLINE static void pack(Columns rows, int64_t at, int, const StripColumns<F>& to) {
    to.scale(0, word(rows, at + 206) >> 16);
    Fours packed[4], high[4], s[4], m[4];
    sixteen(rows, at + 192, packed);
    for (int four = 0; four < 4; ++four) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) s[i] = signed_byte_of(packed[four], i), m[i] = s[i] * uint32_t(kOffset);
      to.scales(4 * four, s, m);
    }
    for (int some = 0; some < 4; ++some) {  // 128 numbers, of these every other sixteen
      const int half = some / 2, odd = some % 2;
      sixteen(rows, at + 128 + 32 * half + 16 * odd, high);
#pragma GCC unroll 2
      for (int quarter = 0; quarter < 2; ++quarter)
        nibbles(rows, at + 64 * half + 32 * quarter + 16 * odd, [&](int i, Fours q) {
          to.codes(32 * half + 8 * quarter + 4 * odd + (i < 4 ? i : 12 + i),
                   q | (high[i % 4] >> uint32_t(2 * quarter + i / 4 * 4) & 3 * kEachByte) << 4);
        });
    }
  }
};

}  // namespace SF_ISA
}  // namespace sf
