// Numbers behind codes of four bits, two to a byte, with the magnitudes of blocks. A table of sixteen numbers lies in
// one or two registers, from which a permutation looks up a vector of codes at once.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/quantize/codes.h"
#include "scaffolding/ops/quantize/kernel.h"

namespace sf {
namespace SF_ISA {

// The magnitudes of blocks: float32, or codes of the dynamic map in blocks of their own.
struct BlockScales {
  const void* absmax;
  const float *nested, *offset;  // null where absmax is float32
  SF_INLINE float operator()(int64_t b) const {
    if (!nested) return static_cast<const float*>(absmax)[b];
    return kDynamic.v[static_cast<const uint8_t*>(absmax)[b]] * nested[b / kNestedBlock] + *offset;
  }
};
SF_INLINE static BlockScales block_scales(const TensorView& absmax, const TensorView& nested,
                                          const TensorView& offset) {
  if (absmax.dtype != kUInt8) return {absmax.data, nullptr, nullptr};
  return {absmax.data, nested.as<const float>(), offset.as<const float>()};
}

SF_INLINE static float nibble_at(const float* table, const uint8_t* codes, int64_t i) {
  return table[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4];
}

#if defined(__AVX512F__)
typedef __m512i NibbleWords;
SF_INLINE static NibbleWords load_words(const uint8_t* p, int count) {
  return _mm512_maskz_loadu_epi32(count < kLanes ? __mmask16((1u << count) - 1) : __mmask16(0xffff), p);
}
template <int kBits> SF_INLINE static NibbleWords shifted(NibbleWords w) { return _mm512_srli_epi32(w, kBits); }
// The number of each word's lowest four bits.
struct NibbleTable {
  __m512 numbers;
  SF_INLINE explicit NibbleTable(const float* table) : numbers(_mm512_loadu_ps(table)) {}
  SF_INLINE vf operator()(NibbleWords w) const { return (vf_raw)_mm512_permutexvar_ps(w, numbers); }
};
#elif defined(__AVX2__)
typedef __m256i NibbleWords;
SF_INLINE static NibbleWords load_words(const uint8_t* p, int count) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_maskload_epi32(reinterpret_cast<const int*>(p), _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes));
}
template <int kBits> SF_INLINE static NibbleWords shifted(NibbleWords w) { return _mm256_srli_epi32(w, kBits); }
struct NibbleTable {
  __m256 lower, upper;
  SF_INLINE explicit NibbleTable(const float* table)
      : lower(_mm256_loadu_ps(table)), upper(_mm256_loadu_ps(table + 8)) {}
  SF_INLINE vf operator()(NibbleWords w) const {  // by the lowest three bits, and the fourth
    return (vf_raw)_mm256_blendv_ps(_mm256_permutevar8x32_ps(lower, w), _mm256_permutevar8x32_ps(upper, w),
                                    _mm256_castsi256_ps(_mm256_slli_epi32(w, 28)));
  }
};
#endif

// The numbers of the 2 * kLanes codes in kLanes bytes.
SF_INLINE static void look_up(const float* table, const uint8_t* p, vf& first, vf& second) {
#if defined(__AVX512F__)
  const NibbleTable numbers(table);
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512 high = (__m512)numbers(shifted<4>(bytes)).v, low = (__m512)numbers(bytes).v;
  first = (vf_raw)_mm512_permutex2var_ps(
      high, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), low);
  second = (vf_raw)_mm512_permutex2var_ps(
      high, _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), low);
#elif defined(__AVX2__)
  const NibbleTable numbers(table);
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256 high = (__m256)numbers(shifted<4>(bytes)).v, low = (__m256)numbers(bytes).v;
  const __m256 even = _mm256_unpacklo_ps(high, low), odd = _mm256_unpackhi_ps(high, low);
  first = (vf_raw)_mm256_permute2f128_ps(even, odd, 0x20);
  second = (vf_raw)_mm256_permute2f128_ps(even, odd, 0x31);
#else
  for (int i = 0; i < kLanes; ++i) first.v[i] = nibble_at(table, p, i), second.v[i] = nibble_at(table, p, kLanes + i);
#endif
}

}  // namespace SF_ISA
}  // namespace sf
