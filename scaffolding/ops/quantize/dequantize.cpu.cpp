// Dequantisation on the CPU: NF4's sixteen numbers lie in one or two registers, from which a permutation looks up a
// vector of codes at once.
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/ops/quantize/codes.h"
#include "scaffolding/ops/quantize/kernel.h"

namespace sf {
namespace SF_ISA {

SF_INLINE static float block_scale(const BlockDequantize& d, int64_t b) {
  if (d.absmax.dtype != kUInt8) return d.absmax.as<const float>()[b];
  return kDynamic.v[d.absmax.as<const uint8_t>()[b]] * d.nested.as<const float>()[b / kNestedBlock] +
         *d.offset.as<const float>();
}

SF_INLINE static float nf4_at(const uint8_t* codes, int64_t i) {
  return kNf4.v[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4];
}

// The numbers of the 2 * kLanes codes in kLanes bytes.
SF_INLINE static void look_up(const uint8_t* p, vf& first, vf& second) {
#if defined(__AVX512F__)
  const __m512 table = _mm512_loadu_ps(kNf4.v);
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  // by the lowest four bits
  const __m512 high = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), table),
               low = _mm512_permutexvar_ps(bytes, table);
  first = (vf_raw)_mm512_permutex2var_ps(
      high, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), low);
  second = (vf_raw)_mm512_permutex2var_ps(
      high, _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), low);
#elif defined(__AVX2__)
  const __m256 negative = _mm256_loadu_ps(kNf4.v), positive = _mm256_loadu_ps(kNf4.v + 8);
  auto number = [&](__m256i code) {  // by the lowest three bits, and the fourth
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(negative, code), _mm256_permutevar8x32_ps(positive, code),
                            _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
  };
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256 high = number(_mm256_srli_epi32(bytes, 4)), low = number(bytes);
  const __m256 even = _mm256_unpacklo_ps(high, low), odd = _mm256_unpackhi_ps(high, low);
  first = (vf_raw)_mm256_permute2f128_ps(even, odd, 0x20);
  second = (vf_raw)_mm256_permute2f128_ps(even, odd, 0x31);
#else
  for (int i = 0; i < kLanes; ++i) first.v[i] = nf4_at(p, i), second.v[i] = nf4_at(p, kLanes + i);
#endif
}

template <class T> static void nf4_blocks(const BlockDequantize& d) {
  const uint8_t* codes = d.codes.as<const uint8_t>();
  T* y = d.y.as<T>();
  const int64_t n = d.y.numel(), block = d.block;
  parallel_for((n + block - 1) / block, 256, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const vf scale(block_scale(d, b));
      const int64_t to = n < (b + 1) * block ? n : (b + 1) * block;
      int64_t i = b * block;
      for (; i + 2 * kLanes <= to; i += 2 * kLanes) {
        vf first, second;
        look_up(codes + i / 2, first, second);
        store(y + i, first * scale);
        store(y + i + kLanes, second * scale);
      }
      for (; i < to; ++i) store_n(y + i, vf(nf4_at(codes, i)) * scale, 1);
    }
  });
}

template <class T> static void dynamic_blocks(const BlockDequantize& d) {
  const uint8_t* codes = d.codes.as<const uint8_t>();
  T* y = d.y.as<T>();
  const int64_t n = d.y.numel(), block = d.block;
  parallel_for((n + block - 1) / block, 64, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const vf scale(block_scale(d, b));
      const int64_t to = n < (b + 1) * block ? n : (b + 1) * block;
      for (int64_t i = b * block; i < to; ++i) store_n(y + i, vf(kDynamic.v[codes[i]]) * scale, 1);
    }
  });
}

template <class T> static void blocks(const BlockDequantize& d) {
  if (d.format == BlockFormat::Nf4) nf4_blocks<T>(d);
  else dynamic_blocks<T>(d);
}

static void dequantize(const BlockDequantize& d) {
  switch (d.y.dtype) {
    case kFloat16: return blocks<Half>(d);
    case kBFloat16: return blocks<BFloat16>(d);
    default: return blocks<float>(d);
  }
}

SF_KERNEL(block_dequantize, DeviceType::CPU, "native", SF_ISA_PRIORITY, dequantize, nullptr)

}  // namespace SF_ISA
}  // namespace sf
