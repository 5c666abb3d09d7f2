// yuv_kernel.h on the CPU.
#include "scaffolding/io/pictures/yuv_kernel.h"

#ifdef __SSSE3__
#include <immintrin.h>
#endif

namespace sf::io {
namespace SF_ISA {

SF_INLINE uint8_t clip(int v) { return uint8_t(v < 0 ? 0 : v > 16383 ? 255 : v >> 6); }

SF_INLINE void pixel(int y, int u, int v, uint8_t* rgb) {
  int luma = (y * 19077) >> 8;
  rgb[0] = clip(luma + ((v * 26149) >> 8) - 14234);
  rgb[1] = clip(luma - ((u * 6419) >> 8) - ((v * 13320) >> 8) + 8708);
  rgb[2] = clip(luma + ((u * 33050) >> 8) - 17685);
}

// 3 * near + far of a row of chroma, with its ends repeated: sum[-1] = sum[0], sum[n] = sum[n - 1]. The pixels 2 i and
// 2 i + 1 then have (3 sum[i] + sum[i - 1] + 8) / 16 and (3 sum[i] + sum[i + 1] + 8) / 16.
SF_INLINE void vertical(const uint8_t* near, const uint8_t* far, int64_t n, uint16_t* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] = uint16_t(3 * near[i] + far[i]);
  sum[-1] = sum[0];
  sum[n] = sum[n - 1];
}

#ifdef __SSSE3__
#ifdef __AVX512BW__
using Words = __m512i;
SF_INLINE Words every(int v) { return _mm512_set1_epi16(short(v)); }
SF_INLINE Words load(const void* at) { return _mm512_loadu_si512(at); }
SF_INLINE Words plus(Words a, Words b) { return _mm512_add_epi16(a, b); }
SF_INLINE Words minus(Words a, Words b) { return _mm512_sub_epi16(a, b); }
SF_INLINE Words plus_saturated(Words a, Words b) { return _mm512_adds_epu16(a, b); }
SF_INLINE Words minus_saturated(Words a, Words b) { return _mm512_subs_epu16(a, b); }
SF_INLINE Words upper_product(Words a, Words b) { return _mm512_mulhi_epu16(a, b); }
SF_INLINE Words up(Words a, int n) { return _mm512_slli_epi16(a, unsigned(n)); }
SF_INLINE Words down(Words a, int n) { return _mm512_srli_epi16(a, unsigned(n)); }
SF_INLINE Words down_signed(Words a, int n) { return _mm512_srai_epi16(a, unsigned(n)); }
SF_INLINE Words both(Words a, Words b) { return _mm512_and_si512(a, b); }
SF_INLINE Words either(Words a, Words b) { return _mm512_or_si512(a, b); }
SF_INLINE Words lower(Words a, Words b) { return _mm512_min_epi16(a, b); }
SF_INLINE Words higher(Words a, Words b) { return _mm512_max_epi16(a, b); }
#elif defined __AVX2__
using Words = __m256i;
SF_INLINE Words every(int v) { return _mm256_set1_epi16(short(v)); }
SF_INLINE Words load(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }
SF_INLINE Words plus(Words a, Words b) { return _mm256_add_epi16(a, b); }
SF_INLINE Words minus(Words a, Words b) { return _mm256_sub_epi16(a, b); }
SF_INLINE Words plus_saturated(Words a, Words b) { return _mm256_adds_epu16(a, b); }
SF_INLINE Words minus_saturated(Words a, Words b) { return _mm256_subs_epu16(a, b); }
SF_INLINE Words upper_product(Words a, Words b) { return _mm256_mulhi_epu16(a, b); }
SF_INLINE Words up(Words a, int n) { return _mm256_slli_epi16(a, n); }
SF_INLINE Words down(Words a, int n) { return _mm256_srli_epi16(a, n); }
SF_INLINE Words down_signed(Words a, int n) { return _mm256_srai_epi16(a, n); }
SF_INLINE Words both(Words a, Words b) { return _mm256_and_si256(a, b); }
SF_INLINE Words either(Words a, Words b) { return _mm256_or_si256(a, b); }
SF_INLINE Words lower(Words a, Words b) { return _mm256_min_epi16(a, b); }
SF_INLINE Words higher(Words a, Words b) { return _mm256_max_epi16(a, b); }
#else
using Words = __m128i;
SF_INLINE Words every(int v) { return _mm_set1_epi16(short(v)); }
SF_INLINE Words load(const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); }
SF_INLINE Words plus(Words a, Words b) { return _mm_add_epi16(a, b); }
SF_INLINE Words minus(Words a, Words b) { return _mm_sub_epi16(a, b); }
SF_INLINE Words plus_saturated(Words a, Words b) { return _mm_adds_epu16(a, b); }
SF_INLINE Words minus_saturated(Words a, Words b) { return _mm_subs_epu16(a, b); }
SF_INLINE Words upper_product(Words a, Words b) { return _mm_mulhi_epu16(a, b); }
SF_INLINE Words up(Words a, int n) { return _mm_slli_epi16(a, n); }
SF_INLINE Words down(Words a, int n) { return _mm_srli_epi16(a, n); }
SF_INLINE Words down_signed(Words a, int n) { return _mm_srai_epi16(a, n); }
SF_INLINE Words both(Words a, Words b) { return _mm_and_si128(a, b); }
SF_INLINE Words either(Words a, Words b) { return _mm_or_si128(a, b); }
SF_INLINE Words lower(Words a, Words b) { return _mm_min_epi16(a, b); }
SF_INLINE Words higher(Words a, Words b) { return _mm_max_epi16(a, b); }
#endif
constexpr int kPixels = sizeof(Words);  // at a time: even ones in one vector of words, odd ones in another

struct Colours {
  Words r, g, b;
};
// y, u, v: 8 bits in the upper half of each word.
SF_INLINE Colours colours(Words y, Words u, Words v) {
  auto times = [](Words a, int factor) { return upper_product(a, every(factor)); };
  auto clipped = [](Words a) { return lower(higher(down_signed(a, 6), every(0)), every(255)); };
  Words luma = times(y, 19077);
  Words r = plus(minus(luma, every(14234)), times(v, 26149));
  Words g = minus(plus(luma, every(8708)), plus(times(u, 6419), times(v, 13320)));
  // Blue alone exceeds 15 bits.
  Words b = lower(down(minus_saturated(plus_saturated(luma, times(u, 33050)), every(17685)), 6), every(255));
  return {clipped(r), clipped(g), b};
}

// Sixteen pixels of three planes.
SF_INLINE void interleave(const uint8_t* r, const uint8_t* g, const uint8_t* b, uint8_t* rgb) {
  auto at = [](const uint8_t* p) { return _mm_load_si128(reinterpret_cast<const __m128i*>(p)); };
  __m128i x[3] = {at(r), at(g), at(b)};
  const __m128i place[3][3] = {{_mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5),
                                _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1),
                                _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1)},
                               {_mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1),
                                _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10),
                                _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1)},
                               {_mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1),
                                _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1),
                                _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15)}};
  for (int k = 0; k < 3; ++k) {
    __m128i part = _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(x[0], place[k][0]), _mm_shuffle_epi8(x[1], place[k][1])),
                                _mm_shuffle_epi8(x[2], place[k][2]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rgb + 16 * k), part);
  }
}

// Sums of chroma as 8 bits in the upper half of the words: of the even pixels with `beside` one to the left, of the odd
// ones with one to the right.
SF_INLINE Words chroma(Words sum, const uint16_t* beside) {
  Words v = plus(plus(plus(sum, up(sum, 1)), load(beside)), every(8));
  return up(down(v, 4), 8);
}

// The pixels of a row that fill whole vectors; says how many they are.
SF_INLINE int64_t whole_vectors(const uint8_t* y, const uint16_t* u, const uint16_t* v, uint8_t* rgb, int64_t width) {
  int64_t x = 0;
  for (; x + kPixels <= width; x += kPixels) {
    int64_t i = x / 2;
    Words luma = load(y + x), su = load(u + i), sv = load(v + i);
    Colours even = colours(up(luma, 8), chroma(su, u + i - 1), chroma(sv, v + i - 1));
    Colours odd = colours(both(luma, every(0xFF00)), chroma(su, u + i + 1), chroma(sv, v + i + 1));
    alignas(64) uint8_t planes[3][kPixels];
    Words joined[3] = {either(even.r, up(odd.r, 8)), either(even.g, up(odd.g, 8)), either(even.b, up(odd.b, 8))};
    __builtin_memcpy(planes, joined, sizeof planes);
    for (int k = 0; k < kPixels; k += 16) interleave(planes[0] + k, planes[1] + k, planes[2] + k, rgb + 3 * (x + k));
  }
  return x;
}
#endif

static void convert(const YuvToRgb& a) {
  int64_t columns = (a.width + 1) / 2, rows = (a.height + 1) / 2;
  uint16_t *u = a.scratch + 32, *v = u + columns + 64;
  for (int64_t r = 0; r < a.height; ++r) {
    int64_t near = r / 2, far = r % 2 ? (near + 1 < rows ? near + 1 : near) : (near > 0 ? near - 1 : near);
    vertical(a.u + near * columns, a.u + far * columns, columns, u);
    vertical(a.v + near * columns, a.v + far * columns, columns, v);
    const uint8_t* y = a.y + r * a.width;
    uint8_t* rgb = a.rgb + r * a.width * 3;
    int64_t x = 0;
#ifdef __SSSE3__
    x = whole_vectors(y, u, v, rgb, a.width);
#endif
    for (; x < a.width; ++x) {
      int64_t i = x / 2, beside = x % 2 ? i + 1 : i - 1;
      pixel(y[x], (3 * u[i] + u[beside] + 8) >> 4, (3 * v[i] + v[beside] + 8) >> 4, rgb + 3 * x);
    }
  }
}

SF_KERNEL(yuv_to_rgb, DeviceType::CPU, "native", SF_ISA_PRIORITY, convert, nullptr)

}  // namespace SF_ISA
}  // namespace sf::io
