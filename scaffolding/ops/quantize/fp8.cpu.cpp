// float8 to wider numbers on the CPU. Either format becomes a float16 by a shift, denormals included, which the
// processor converts: e5m2 is a float16's upper half, e4m3 one whose exponent counts from eight less.
#include "scaffolding/backend/cpu/simd_rows.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/quantize/kernel.h"

namespace sf {
namespace SF_ISA {

// kLanes numbers.
template <class Q> SF_INLINE vf widen(const uint8_t* from) {
  constexpr bool kFour = std::is_same_v<Q, Float8E4M3>;
#if defined(__AVX512F__) || defined(__F16C__)
#if defined(__AVX512F__)
  const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  if constexpr (!kFour) return (vf_raw)_mm512_cvtph_ps(_mm256_slli_epi16(bytes, 8));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(bytes, _mm256_set1_epi16(0x80)), 8),
                size = _mm256_slli_epi16(_mm256_and_si256(bytes, _mm256_set1_epi16(0x7f)), 7);
  const vf x = (vf_raw)_mm512_cvtph_ps(_mm256_or_si256(sign, size));
#else
  const __m128i bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  if constexpr (!kFour) return (vf_raw)_mm256_cvtph_ps(_mm_slli_epi16(bytes, 8));
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(bytes, _mm_set1_epi16(0x80)), 8),
                size = _mm_slli_epi16(_mm_and_si128(bytes, _mm_set1_epi16(0x7f)), 7);
  const vf x = (vf_raw)_mm256_cvtph_ps(_mm_or_si128(sign, size));
#endif
  // all ones but the sign: e4m3fn's NaN, which a float16 would read as 1.875
  return select(abs(x) == vf(1.875f), from_bits(vi_raw{} + 0x7fc00000), x * vf(256.f));
#else
  vf x;
  for (int i = 0; i < kLanes; ++i) {
    Q q;
    std::memcpy(&q, from + i, 1);
    x.v[i] = to_float(q);
  }
  return x;
#endif
}

template <class Q, class T> static void dequantize_rows(const Fp8Dequantize& d) {
  const int64_t rows = d.y.sizes[0], columns = d.y.sizes[1];
  const bool by_row = d.scale.numel() > 1;
  parallel_for(rows, columns > 0 ? (16384 + columns - 1) / columns : 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const vf scale(d.scale.as<const float>()[by_row ? r : 0]);
      const uint8_t* from = d.q.as<const uint8_t>() + r * columns;
      T* to = d.y.as<T>() + r * columns;
      int64_t c = 0;
      for (; c + kLanes <= columns; c += kLanes) store(to + c, widen<Q>(from + c) * scale);
      if (c == columns) continue;
      uint8_t last[kLanes] = {};
      std::memcpy(last, from + c, size_t(columns - c));
      store_n(to + c, widen<Q>(last) * scale, int(columns - c));
    }
  });
}

template <class Q> static void dequantize_to(const Fp8Dequantize& d) {
  switch (d.y.dtype) {
    case kFloat16: return dequantize_rows<Q, Half>(d);
    case kBFloat16: return dequantize_rows<Q, BFloat16>(d);
    default: return dequantize_rows<Q, float>(d);
  }
}
static void dequantize(const Fp8Dequantize& d) {
  if (d.q.dtype == kFloat8E4M3) dequantize_to<Float8E4M3>(d);
  else dequantize_to<Float8E5M2>(d);
}

SF_KERNEL(fp8_dequantize, DeviceType::CPU, "native", SF_ISA_PRIORITY, dequantize, nullptr)

}  // namespace SF_ISA
}  // namespace sf
