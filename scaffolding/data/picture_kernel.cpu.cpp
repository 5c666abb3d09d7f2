// picture_kernel.h on the CPU.
#include "scaffolding/data/picture_kernel.h"

#include "scaffolding/backend/cpu/simd.h"

namespace sf::data {
namespace SF_ISA {

constexpr int kBits = 22;

SF_INLINE uint8_t clip(int32_t v) {
  v >>= kBits;
  return uint8_t(v < 0 ? 0 : v > 255 ? 255 : v);
}

template <int C> SF_INLINE void column_plain(const uint8_t* in, uint8_t* out, const int32_t* w, int n) {
  for (int c = 0; c < C; ++c) {
    int32_t sum = 1 << (kBits - 1);
    for (int k = 0; k < n; ++k) sum += in[k * C + c] * w[k];
    out[c] = clip(sum);
  }
}
#ifdef __AVX2__
// Four taps of up to four channels at a time: 16-bit products of pairs of taps (pmaddwd), once with the upper and once
// with the lower 11 bits of the weights, so that the sum is exact.
struct PairWeights {
  __m256i upper, lower;  // [w0 w1 w0 w1 ...] of 16 bits in the lower lane, [w2 w3 ...] in the upper
};
SF_INLINE PairWeights pair_weights(const int32_t* w) {
  const __m256i spread = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w));
  __m128i upper = _mm_packs_epi32(_mm_srai_epi32(four, 11), four),
          lower = _mm_packs_epi32(_mm_and_si128(four, _mm_set1_epi32(2047)), four);
  return {_mm256_permutevar8x32_epi32(_mm256_castsi128_si256(upper), spread),
          _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(lower), spread)};
}
// One output pixel; reads 16 bytes from each fourth tap on. `first` are the weights of the first four.
template <int C>
SF_INLINE void column_pairs(const uint8_t* in, uint8_t* out, const PairWeights& first, const int32_t* w, int n) {
  // The lower lane pairs taps 0 and 1, the upper one taps 2 and 3, channel by channel, widened to 16 bits.
  const __m256i pairs = C == 4 ? _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1, 8, -1, 12, -1,
                                                  9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1)
                               : _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9,
                                                  -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  auto taps = [&](int k) {
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + k * C))), pairs);
  };
  __m256i x = taps(0), upper = _mm256_madd_epi16(x, first.upper), lower = _mm256_madd_epi16(x, first.lower);
  for (int k = 4; k < n; k += 4) {
    PairWeights more = pair_weights(w + k);
    x = taps(k);
    upper = _mm256_add_epi32(upper, _mm256_madd_epi16(x, more.upper));
    lower = _mm256_add_epi32(lower, _mm256_madd_epi16(x, more.lower));
  }
  __m256i both = _mm256_add_epi32(_mm256_slli_epi32(upper, 11), lower);
  __m128i sum = _mm_add_epi32(_mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)),
                              _mm_set1_epi32(1 << (kBits - 1)));
  sum = _mm_srai_epi32(sum, kBits);
  auto pixel = uint32_t(_mm_cvtsi128_si32(_mm_packus_epi16(_mm_packs_epi32(sum, sum), sum)));
  __builtin_memcpy(out, &pixel, C);
}
#endif

#ifdef __AVX2__
// Weights without negative ones and with at most 7 fractional bits, as half or a quarter of a size has (eighths,
// 32nds): sums of 8-bit products are exact in 16 bits.
constexpr int kShortBits = 7, kUnused = kBits - kShortBits;
SF_INLINE bool are_short(const int32_t* w, int n) {
  int32_t bits = 0, sum = 0;
  for (int k = 0; k < n; ++k) bits |= w[k], sum += w[k];
  return bits >= 0 && (bits & ((1 << kUnused) - 1)) == 0 && bits < 1 << kBits && sum <= 1 << kBits;
}
// Two of them for _mm_maddubs_epi16.
SF_INLINE int16_t short_pair(const int32_t* w) { return int16_t((w[0] >> kUnused) | (w[1] >> kUnused) << 8); }

// The same for several output pixels that lie side by side, one in each 128-bit lane.
#ifdef __AVX512BW__
using Lanes = __m512i;
constexpr int kLanes = 4;
SF_INLINE Lanes every(__m128i v) { return _mm512_broadcast_i32x4(v); }
SF_INLINE Lanes gather(const uint8_t* const* at, int64_t offset) {
  auto load = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at[i] + offset)); };
  Lanes v = _mm512_inserti32x4(_mm512_castsi128_si512(load(0)), load(1), 1);
  return _mm512_inserti32x4(_mm512_inserti32x4(v, load(2), 2), load(3), 3);
}
SF_INLINE Lanes shuffle(Lanes v, Lanes by) { return _mm512_shuffle_epi8(v, by); }
SF_INLINE Lanes pair_sums(Lanes x, Lanes w) { return _mm512_madd_epi16(x, w); }
SF_INLINE Lanes plus(Lanes x, Lanes y) { return _mm512_add_epi32(x, y); }
SF_INLINE Lanes joined(Lanes upper, Lanes lower) {
  return plus(plus(_mm512_slli_epi32(upper, 11), lower), _mm512_set1_epi32(1 << (kBits - 1)));
}
// The lanes' pixels, four bytes each.
SF_INLINE __m128i pixels_of(Lanes sum) {
  sum = _mm512_srai_epi32(sum, kBits);
  return _mm512_cvtusepi32_epi8(_mm512_max_epi32(sum, _mm512_setzero_si512()));
}
SF_INLINE Lanes short_sums(Lanes x, Lanes w) { return _mm512_maddubs_epi16(x, w); }
SF_INLINE Lanes plus_short(Lanes x, Lanes y) { return _mm512_add_epi16(x, y); }
SF_INLINE Lanes low_bytes(Lanes x, Lanes y) { return _mm512_unpacklo_epi8(x, y); }
SF_INLINE Lanes high_bytes(Lanes x, Lanes y) { return _mm512_unpackhi_epi8(x, y); }
SF_INLINE Lanes every_short(int v) { return _mm512_set1_epi16(short(v)); }
SF_INLINE Lanes load_row(const uint8_t* p) { return _mm512_loadu_si512(p); }
// Sums of products with kShortBits fractional bits as bytes: those of x, then those of y, in each lane.
SF_INLINE Lanes rounded_bytes(Lanes x, Lanes y) {
  auto rounded = [](Lanes v) {
    return _mm512_srli_epi16(_mm512_add_epi16(v, _mm512_set1_epi16(1 << (kShortBits - 1))), kShortBits);
  };
  return _mm512_packus_epi16(rounded(x), rounded(y));
}
// Sums in the lower and the upper half of each lane added; the lanes' pixels, four bytes each.
SF_INLINE __m128i short_pixels_of(Lanes sum) {
  sum = _mm512_add_epi16(sum, _mm512_bsrli_epi128(sum, 8));
  return _mm512_castsi512_si128(_mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), rounded_bytes(sum, sum)));
}
#else
using Lanes = __m256i;
constexpr int kLanes = 2;
SF_INLINE Lanes every(__m128i v) { return _mm256_broadcastsi128_si256(v); }
SF_INLINE Lanes gather(const uint8_t* const* at, int64_t offset) {
  auto load = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at[i] + offset)); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load(0)), load(1), 1);
}
SF_INLINE Lanes shuffle(Lanes v, Lanes by) { return _mm256_shuffle_epi8(v, by); }
SF_INLINE Lanes pair_sums(Lanes x, Lanes w) { return _mm256_madd_epi16(x, w); }
SF_INLINE Lanes plus(Lanes x, Lanes y) { return _mm256_add_epi32(x, y); }
SF_INLINE Lanes joined(Lanes upper, Lanes lower) {
  return plus(plus(_mm256_slli_epi32(upper, 11), lower), _mm256_set1_epi32(1 << (kBits - 1)));
}
SF_INLINE __m128i pixels_of(Lanes sum) {
  sum = _mm256_srai_epi32(sum, kBits);
  __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  return _mm_packus_epi16(words, words);
}
SF_INLINE Lanes short_sums(Lanes x, Lanes w) { return _mm256_maddubs_epi16(x, w); }
SF_INLINE Lanes plus_short(Lanes x, Lanes y) { return _mm256_add_epi16(x, y); }
SF_INLINE Lanes low_bytes(Lanes x, Lanes y) { return _mm256_unpacklo_epi8(x, y); }
SF_INLINE Lanes high_bytes(Lanes x, Lanes y) { return _mm256_unpackhi_epi8(x, y); }
SF_INLINE Lanes every_short(int v) { return _mm256_set1_epi16(short(v)); }
SF_INLINE Lanes load_row(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
SF_INLINE Lanes rounded_bytes(Lanes x, Lanes y) {
  auto rounded = [](Lanes v) {
    return _mm256_srli_epi16(_mm256_add_epi16(v, _mm256_set1_epi16(1 << (kShortBits - 1))), kShortBits);
  };
  return _mm256_packus_epi16(rounded(x), rounded(y));
}
SF_INLINE __m128i short_pixels_of(Lanes sum) {
  sum = _mm256_add_epi16(sum, _mm256_bsrli_epi128(sum, 8));
  return _mm256_castsi256_si128(
      _mm256_permutevar8x32_epi32(rounded_bytes(sum, sum), _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0)));
}
#endif

// The loop of columns_together for short weights: one product of all four taps of a group.
template <int C>
SF_INLINE void short_columns(const ResizePass& a, int64_t x, const uint8_t* const* at, int groups, int64_t rows) {
  constexpr int kGroups = 4;
  alignas(64) int16_t table[kGroups][kLanes][8];
  for (int g = 0; g < groups; ++g)
    for (int i = 0; i < kLanes; ++i)
      for (int c = 0; c < 8; ++c) table[g][i][c] = short_pair(a.weight + (x + i) * a.taps + 4 * g + c / 4 * 2);
  auto weights = [&](int g) {
    Lanes v;
    __builtin_memcpy(&v, table[g], sizeof v);
    return v;
  };
  const Lanes pairs = every(C == 4 ? _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15)
                                   : _mm_setr_epi8(0, 3, 1, 4, 2, 5, -1, -1, 6, 9, 7, 10, 8, 11, -1, -1));
  const __m128i together = C == 4 ? _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                                  : _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const Lanes first = weights(0);
  uint8_t* out = a.out + x * C;
  for (int64_t y = 0; y < rows; ++y, out += a.out_size * C) {
    Lanes sum = short_sums(shuffle(gather(at, y * a.in_size * C), pairs), first);
    for (int g = 1; g < groups; ++g)
      sum = plus_short(sum, short_sums(shuffle(gather(at, y * a.in_size * C + g * 4 * C), pairs), weights(g)));
    __m128i pixels = _mm_shuffle_epi8(short_pixels_of(sum), together);
    __builtin_memcpy(out, &pixels, kLanes * C);
  }
}

// Output pixels x to x + kLanes - 1 of all rows but those, at the end, where a vector would reach behind the picture;
// says how many rows those are not.
template <int C> SF_INLINE int64_t columns_together(const ResizePass& a, int64_t x) {
  constexpr int kGroups = 4;  // of four taps
  int64_t row = a.in_size * C, furthest = 0;
  int n = 0;
  const uint8_t* at[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    at[i] = a.in + a.first[x + i] * C;
    n = a.count[x + i] > n ? a.count[x + i] : n;
    furthest = a.first[x + i] * C > furthest ? a.first[x + i] * C : furthest;
  }
  int groups = (n + 3) / 4;
  int64_t room = a.rows * row - (furthest + (groups - 1) * 4 * C + 16);
  if (groups > kGroups || room < 0) return 0;
  int64_t rows = room / row + 1 < a.rows ? room / row + 1 : a.rows;
  bool all_short = true;
  for (int i = 0; i < kLanes; ++i) all_short &= are_short(a.weight + (x + i) * a.taps, groups * 4);
  if (all_short) return short_columns<C>(a, x, at, groups, rows), rows;
  // Of a group: 16-bit halves of the weights of taps 0 and 1, then of 2 and 3, for each channel.
  alignas(64) int32_t table[kGroups][4][kLanes][4];
  for (int g = 0; g < groups; ++g)
    for (int i = 0; i < kLanes; ++i)
      for (int pair = 0; pair < 2; ++pair) {
        const int32_t* w = a.weight + (x + i) * a.taps + 4 * g + 2 * pair;
        for (int c = 0; c < 4; ++c) {
          table[g][pair][i][c] = ((w[0] >> 11) & 0xFFFF) | (w[1] >> 11) << 16;
          table[g][2 + pair][i][c] = (w[0] & 2047) | (w[1] & 2047) << 16;
        }
      }
  auto weights = [&](int g, int which) {
    Lanes v;
    __builtin_memcpy(&v, table[g][which], sizeof v);
    return v;
  };
  const Lanes first = every(C == 4 ? _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1)
                                   : _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const Lanes second = every(C == 4 ? _mm_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1)
                                    : _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  const __m128i together = C == 4 ? _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                                  : _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const Lanes upper01 = weights(0, 0), upper23 = weights(0, 1), lower01 = weights(0, 2), lower23 = weights(0, 3);
  uint8_t* out = a.out + x * C;
  for (int64_t y = 0; y < rows; ++y, out += a.out_size * C) {
    Lanes v = gather(at, y * row), taps01 = shuffle(v, first), taps23 = shuffle(v, second);
    Lanes upper = plus(pair_sums(taps01, upper01), pair_sums(taps23, upper23)),
          lower = plus(pair_sums(taps01, lower01), pair_sums(taps23, lower23));
    for (int g = 1; g < groups; ++g) {
      v = gather(at, y * row + g * 4 * C), taps01 = shuffle(v, first), taps23 = shuffle(v, second);
      upper = plus(upper, plus(pair_sums(taps01, weights(g, 0)), pair_sums(taps23, weights(g, 1))));
      lower = plus(lower, plus(pair_sums(taps01, weights(g, 2)), pair_sums(taps23, weights(g, 3))));
    }
    __m128i pixels = _mm_shuffle_epi8(pixels_of(joined(upper, lower)), together);
    __builtin_memcpy(out, &pixels, kLanes * C);
  }
  return rows;
}
#endif

// Output pixel x from row y on.
template <int C> static void column(const ResizePass& a, int64_t x, int64_t y) {
  const int32_t* w = a.weight + x * a.taps;
  const uint8_t* in = a.in + (y * a.in_size + a.first[x]) * C;
  uint8_t* out = a.out + (y * a.out_size + x) * C;
  int n = a.count[x];
#ifdef __AVX2__
  constexpr int kWide = C < 3 ? 3 : C;
  PairWeights first = pair_weights(w);
  // Vectors read up to 16 bytes behind the last tap, which the picture must have.
  const uint8_t* last = a.in + a.rows * a.in_size * C - ((n + 3) / 4 * 4 * C + 16);
  if (C >= 3)
    for (; y < a.rows && in <= last; ++y, in += a.in_size * C, out += a.out_size * C)
      column_pairs<kWide>(in, out, first, w, n);
#endif
  for (; y < a.rows; ++y, in += a.in_size * C, out += a.out_size * C) column_plain<C>(in, out, w, n);
}

template <int C> static void along_columns(const ResizePass& a) {
  int64_t x = 0;
#ifdef __AVX2__
  if constexpr (C >= 3)
    for (; x + kLanes <= a.out_size; x += kLanes)
      if (int64_t done = columns_together<C>(a, x); done < a.rows)
        for (int i = 0; i < kLanes; ++i) column<C>(a, x + i, done);
#endif
  for (; x < a.out_size; ++x) column<C>(a, x, 0);
}

#ifdef __AVX2__
// Sixteen bytes of a row from pairs of rows, as column_pairs.
SF_INLINE void row_pairs(const uint8_t* in, int64_t row, uint8_t* out, const int32_t* w, int n) {
  __m256i upper[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, lower[2] = {upper[0], upper[0]};
  for (int k = 0; k < n; k += 2) {
    __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + k * row));
    // its weight is zero
    __m128i second = k + 1 < n ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + (k + 1) * row)) : first;
    __m256i hi = _mm256_set1_epi32(((w[k] >> 11) & 0xFFFF) | (w[k + 1] >> 11) << 16);
    __m256i lo = _mm256_set1_epi32((w[k] & 2047) | (w[k + 1] & 2047) << 16);
    __m256i x[2] = {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(first, second)),
                    _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(first, second))};
    for (int h = 0; h < 2; ++h) {
      upper[h] = _mm256_add_epi32(upper[h], _mm256_madd_epi16(x[h], hi));
      lower[h] = _mm256_add_epi32(lower[h], _mm256_madd_epi16(x[h], lo));
    }
  }
  for (int h = 0; h < 2; ++h) {
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(upper[h], 11), lower[h]),
                                   _mm256_set1_epi32(1 << (kBits - 1)));
    sum = _mm256_srai_epi32(sum, kBits);
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 8 * h), _mm_packus_epi16(words, words));
  }
}
#endif

#ifdef __AVX2__
// A vector of bytes of a row, with short weights.
SF_INLINE void short_row(const uint8_t* in, int64_t row, uint8_t* out, const int32_t* w, int n) {
  Lanes low = every_short(0), high = low;
  for (int k = 0; k < n; k += 2) {
    Lanes first = load_row(in + k * row), second = k + 1 < n ? load_row(in + (k + 1) * row) : first,
          pair = every_short(short_pair(w + k));
    low = plus_short(low, short_sums(low_bytes(first, second), pair));
    high = plus_short(high, short_sums(high_bytes(first, second), pair));
  }
  Lanes bytes = rounded_bytes(low, high);
  __builtin_memcpy(out, &bytes, sizeof bytes);
}
#endif

static void along_rows(const ResizePass& a) {
  int64_t row = a.rows * a.channels;
  for (int64_t y = 0; y < a.out_size; ++y) {
    const uint8_t* in = a.in + a.first[y] * row;
    uint8_t* out = a.out + y * row;
    const int32_t* w = a.weight + y * a.taps;
    int64_t i = 0;
#ifdef __AVX2__
    constexpr int64_t kWide = sizeof(Lanes);
    if (are_short(w, a.count[y]))
      for (; i + kWide <= row; i += kWide) short_row(in + i, row, out + i, w, a.count[y]);
    for (; i + 16 <= row; i += 16) row_pairs(in + i, row, out + i, w, a.count[y]);
#endif
    for (; i < row; ++i) {
      int32_t sum = 1 << (kBits - 1);
      for (int k = 0; k < a.count[y]; ++k) sum += in[k * row + i] * w[k];
      out[i] = clip(sum);
    }
  }
}

static void resize(const ResizePass& a) {
  if (a.along_rows) return along_rows(a);
  switch (a.channels) {
    case 1: return along_columns<1>(a);
    case 2: return along_columns<2>(a);
    case 3: return along_columns<3>(a);
    default: return along_columns<4>(a);
  }
}

template <int C> static void to_float_of(const PixelsToFloat& a) {
  for (int c = 0; c < C; ++c) {
    const uint8_t* in = a.in + c;
    float* out = a.out + c * a.pixels;
    float scale = a.scale[c], shift = a.shift[c];
    for (int64_t i = 0; i < a.pixels; ++i) out[i] = float(in[i * C]) * scale + shift;
  }
}
static void to_float(const PixelsToFloat& a) {
  switch (a.channels) {
    case 1: return to_float_of<1>(a);
    case 2: return to_float_of<2>(a);
    case 3: return to_float_of<3>(a);
    default: return to_float_of<4>(a);
  }
}

template <int C> static void composite_of(const CompositePixels& a) {
  int64_t i = 0;
#ifdef __AVX2__
  if constexpr (C == 4) {  // four pixels at a time; 16 bytes are written for 12
    const __m128i alphas = _mm_setr_epi8(3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15);
    const __m128i colours = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const __m256i under =
        _mm256_set1_epi64x(int64_t(a.colour[0]) | int64_t(a.colour[1]) << 16 | int64_t(a.colour[2]) << 32);
    for (; i + 6 <= a.pixels; i += 4) {
      __m128i in = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a.in + i * 4));
      __m256i x = _mm256_cvtepu8_epi16(in), alpha = _mm256_cvtepu8_epi16(_mm_shuffle_epi8(in, alphas));
      __m256i v = _mm256_add_epi16(_mm256_mullo_epi16(x, alpha),
                                   _mm256_mullo_epi16(under, _mm256_sub_epi16(_mm256_set1_epi16(255), alpha)));
      v = _mm256_add_epi16(v, _mm256_set1_epi16(128));
      v = _mm256_srli_epi16(_mm256_add_epi16(v, _mm256_srli_epi16(v, 8)), 8);
      __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(a.out + i * 3), _mm_shuffle_epi8(bytes, colours));
    }
  }
#endif
  for (; i < a.pixels; ++i) {
    const uint8_t* in = a.in + i * C;
    uint8_t* out = a.out + i * (C - 1);
    int alpha = in[C - 1];
    for (int c = 0; c < C - 1; ++c) {
      int v = in[c] * alpha + a.colour[c] * (255 - alpha) + 128;
      out[c] = uint8_t((v + (v >> 8)) >> 8);  // v / 255, exactly
    }
  }
}
static void composite(const CompositePixels& a) { a.channels == 2 ? composite_of<2>(a) : composite_of<4>(a); }

SF_KERNEL(picture_resize, DeviceType::CPU, "native", SF_ISA_PRIORITY, resize, nullptr)
SF_KERNEL(picture_to_float, DeviceType::CPU, "native", SF_ISA_PRIORITY, to_float, nullptr)
SF_KERNEL(picture_composite, DeviceType::CPU, "native", SF_ISA_PRIORITY, composite, nullptr)

}  // namespace SF_ISA
}  // namespace sf::data
