// Few rows of activations times a weight in blocks, bound by reading them: words of codes are multiplied as they lie.
// A mask leaves a number in each lane; its place in the word is a power of two that the activations are divided by,
// which are arranged once a call in the order of the products. Sums of what has a scale in common are scaled once;
// minima, and what is taken from all codes, are multiplied by sums of activations.
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/quantize/decoded_product.h"
#include "scaffolding/ops/quantize/gguf_decode.h"
#include "scaffolding/ops/quantize/nibbles.h"

#if defined(__AVX512F__)
namespace sf {
namespace SF_ISA {

typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));
SF_INLINE Words words_at(const void* p) {
  Words w;
  __builtin_memcpy(&w, p, sizeof w);
  return w;
}

// A span of numbers: 256 of a K format, blocks of 32 with 16 bytes of codes side by side in a vector, one of 32 signed
// bytes, or a vector of nibbles. Field f of byte y of its codes is number (y / run * fields + f) * run + y % run.
struct WordLayout {
  int numbers, bytes, bits, run;
  int each;                         // numbers with a scale and a minimum in common
  int codes, offset = 0;            // where in a block they are; what is taken from each
  int further = 0, further_at = 0;  // bits of a code that lie elsewhere
  int minima = 0, first = 0;        // how many; the first one's lane of a vector
  bool table = false;
};
// The weight, and what blocks do not say themselves.
struct WordRows {
  const uint8_t* codes;
  int64_t row_bytes;
  const float* table = nullptr;
  BlockScales scales{};
  int block_bits = 0;  // of a block's number of nibbles
};

template <WordLayout C> struct WordFormat {
  static constexpr bool kNibbles = C.run == 1, kSmall = C.run == 16, kBytes = C.bits == 8;
  static constexpr int kFields = 8 / C.bits, kParts = kBytes ? C.numbers / kLanes : 4;
  static constexpr int kVectors = C.numbers / (kParts * kFields * kLanes), kBlock = C.bytes * 4 / kLanes;
  static constexpr bool kOneScale = C.run * kFields <= C.each;  // for all fields of a word
  // Floats that the activations of a span become.
  static constexpr int kArranged =
      C.numbers + kLanes * ((C.offset ? kVectors * (kOneScale ? 1 : kFields) : 0) + (C.minima ? 1 : 0));

  static constexpr int number(int v, int field, int part, int lane) {
    if (kBytes) return part * kLanes + lane;
    const int y = 4 * (v * kLanes + lane) + part;
    return (y / C.run * kFields + (kNibbles ? 1 - field : field)) * C.run + y % C.run;
  }
  static constexpr int place(int field, int part) { return 8 * part + (C.further ? 0 : C.bits * field); }
  static constexpr float unit(int field, int part) {
    const int at = place(field, part);
    return C.table || kBytes || at + C.bits + C.further == 32 ? 1.f : float(uint32_t(1) << at);
  }
  // Of a field: its numbers; whose scales its lanes have; by how many bits what lies elsewhere, number n's in byte
  // n % 32 of 32, is turned to the right to be next to the code.
  struct Lanes {
    alignas(64) uint32_t scale[kVectors][kFields][kLanes], turn[kVectors][kFields][kLanes];
    uint8_t number[kVectors * kFields][kParts * kLanes];
  };
  static constexpr Lanes lanes() {
    Lanes t{};
    for (int i = 0; i < kVectors * kFields * kLanes; ++i) {
      const int v = i / kLanes / kFields, field = i / kLanes % kFields, n = number(v, field, 0, i % kLanes);
      t.scale[v][field][i % kLanes] = uint32_t(n / C.each);
      for (int part = 0; part < kParts; ++part)
        t.number[i / kLanes][part * kLanes + i % kLanes] = uint8_t(number(v, field, part, i % kLanes));
      t.turn[v][field][i % kLanes] = uint32_t(C.further * (n / 32) % 8 - C.bits) % 32;
    }
    return t;
  }
  static constexpr Lanes kOf = lanes();

  // Activations in the order of the products, with zeros past the last one.
  static void arrange(const float* from, int64_t k, float* to) {
    for (; k > 0; k -= C.numbers, from += C.numbers) {
      float x[C.numbers] = {}, *start = to;
      std::memcpy(x, from, size_t(min64(C.numbers, k)) * sizeof(float));
      for (int i = 0; i < kVectors * kFields; ++i) {
        if (C.offset && (i % kFields == 0 || !kOneScale)) {
          std::memset(start = to, 0, kLanes * sizeof(float));
          to += kLanes;
        }
        for (int part = 0; part < kParts; ++part, to += kLanes) {
          const float units = 1 / unit(i % kFields, part);
          for (int lane = 0; lane < kLanes; ++lane) {
            const float a = x[kOf.number[i][part * kLanes + lane]];
            to[lane] = a * units;
            if (C.offset) start[lane] -= float(C.offset) * a;
          }
        }
      }
      for (int lane = 0; C.minima && lane < kLanes; ++lane, ++to) {
        const int at = lane - C.first;
        *to = 0;
        for (int i = 0; at >= 0 && at < C.minima && i < C.each; ++i) *to -= x[at * C.each + i];
      }
    }
  }

  // ---- A span: words; a field's codes in them; numbers; scales.
  const WordRows& f;
  NibbleTable table;
  const uint8_t* b;
  int count;
  uint8_t rest[C.bytes];
  vf scales, minima;

  SF_INLINE explicit WordFormat(const WordRows& rows) : f(rows), table(C.table ? rows.table : kNf4.v) {}
  SF_INLINE void read(const uint8_t* at, int64_t numbers) {
    b = at, count = int(min64(C.numbers, numbers));
    if constexpr (C.numbers == 256) {
      auto *s = (float*)&scales, *m = (float*)&minima;
      C.bytes == 84    ? scales_Q2_K(b, s, m)
      : C.bytes == 110 ? scales_Q3_K(b, s, m)
      : C.bytes == 210 ? scales_Q6_K(b, s, m)
                       : six_bit_scales(b, s, m);
    } else if constexpr (kSmall) {
      if (count < C.numbers) {  // blocks that are missing are zeros
        std::memset(rest, 0, sizeof rest);
        std::memcpy(rest, at, size_t(count / 32 * kBlock));
        b = rest;
      }
      scales = halves(sixteen_bits(0));
      minima = halves(sixteen_bits(2) ^ 0x8000800080008000);  // which are added
    }
  }
  SF_INLINE static vf wide(__m128 x) { return (vf_raw)_mm512_zextps128_ps512(x); }
  SF_INLINE static vf halves(uint64_t x) { return wide(_mm_cvtph_ps(_mm_cvtsi64_si128(int64_t(x)))); }
  // The 16 bits at `at` of each block.
  SF_INLINE uint64_t sixteen_bits(int at) const {
    uint64_t all = 0;
#pragma GCC unroll 4
    for (int i = 0; i < kLanes / 4; ++i) {
      uint16_t some;
      __builtin_memcpy(&some, b + i * kBlock + at, 2);
      all |= uint64_t(some) << 16 * i;
    }
    return all;
  }
  SF_INLINE Words words(int v) const {
    if constexpr (kNibbles) return (Words)load_words(b, count / 8);
    if constexpr (kBytes) return Words{};
    else if constexpr (!kSmall) return words_at(b + C.codes + 4 * kLanes * v);
    const auto of = [&](int i) { return _mm_loadu_si128((const __m128i*)(b + i * kBlock + C.codes)); };
    const __m512i two = _mm512_inserti32x4(_mm512_castsi128_si512(of(0)), of(1), 1);
    return (Words)_mm512_inserti32x4(_mm512_inserti32x4(two, of(2), 2), of(3), 3);
  }
  SF_INLINE Words codes(Words w, int v, int field) const {
    if constexpr (C.further == 0) return w;
    Words high;
    if constexpr (kSmall) {  // bit n of a word is number n's
      high = (Words)_mm512_movm_epi8(sixteen_bits(C.further_at + 2 * field));
    } else {
      const uint8_t* p = b + C.further_at + (C.further == 2 ? number(v, 0, 0, 0) / 128 * 32 : 0);
      const __m256i bytes = _mm256_loadu_si256((const __m256i*)p);
      high = (Words)_mm512_rorv_epi32(_mm512_broadcast_i64x4(bytes), (__m512i)words_at(kOf.turn[v][field]));
    }
    constexpr uint32_t mask = ((1u << C.bits) - 1) * 0x01010101u;
    return ((field ? w >> uint32_t(C.bits * field) : w) & mask) | (high & ~mask);
  }
  SF_INLINE vf number_of(Words w, int field, int part) const {
    const int at = place(field, part), bits = C.bits + C.further;
    if constexpr (C.table) return table((NibbleWords)(w >> uint32_t(at)));
    if constexpr (kBytes) {
      const uint8_t* p = b + C.codes + part * kLanes;
      w = (Words)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p));
    } else {
      w = at + bits == 32 ? w >> uint32_t(at) : w & ((1u << bits) - 1) << at;
    }
    return __builtin_convertvector((vi_raw)w, vf_raw);
  }
  SF_INLINE vf scale(int v, int field) const {
    if constexpr (kBytes) return vf(half_at(b));
    Words places = words_at(kOf.scale[v][field]);
    vf from = scales;
    if constexpr (kNibbles) {
      const int64_t first = 2 * (b - f.codes) >> f.block_bits;
      const int blocks = count >> f.block_bits;
      if (blocks <= 1) return vf(f.scales(first));
      const auto of = [&](int i) { return i < blocks ? f.scales(first + i) : 0; };
      from = wide(_mm_setr_ps(of(0), of(1), of(2), of(3)));
      places = places * 8 >> uint32_t(f.block_bits);
    }
    return __builtin_shuffle(from.v, (vi_raw)places);
  }
};

constexpr int64_t kWordRows = 8;   // more cost as much as with numbers that are decoded once
constexpr int kWordCols = 8;       // rows of the weight that activations meet while they are in L1,
constexpr int64_t kDeepest = 512;  // and how many numbers of each
constexpr int kSumsRow = kWordCols * kLanes;

#define SF_EACH_ROW _Pragma("GCC unroll 4") for (int i = 0; i < MR; ++i)
// sums[i] += MR rows of arranged activations times `count` numbers of a row of the weight.
template <WordLayout C, int MR>
[[gnu::noinline]] static void add_words(const WordRows& f, const uint8_t* at, int64_t count, const float* a,
                                        int64_t a_row, float* sums) {
  using F = WordFormat<C>;
  F span(f);
  vf acc[MR], some[MR];
  SF_EACH_ROW acc[i] = load(sums + i * kSumsRow);
  for (; count > 0; count -= C.numbers, at += C.bytes) {
    span.read(at, count);
#pragma GCC unroll 4
    for (int v = 0; v < F::kVectors; ++v) {
      const Words w = span.words(v);
#pragma GCC unroll 4
      for (int field = 0; field < F::kFields; ++field) {
        const Words codes = span.codes(w, v, field);
        const bool first = field == 0 || !F::kOneScale;
        if (first && C.offset) {
          SF_EACH_ROW some[i] = load(a + i * a_row);
          a += kLanes;
        }
#pragma GCC unroll 4
        for (int part = 0; part < F::kParts; ++part, a += kLanes) {
          const vf q = span.number_of(codes, field, part);
          SF_EACH_ROW {
            const vf x = load(a + i * a_row);
            some[i] = first && part == 0 && !C.offset ? q * x : fma(q, x, some[i]);
          }
        }
        if (field < F::kFields - 1 && F::kOneScale) continue;
        const vf scale = span.scale(v, field);
        SF_EACH_ROW acc[i] = fma(some[i], scale, acc[i]);
      }
    }
    if constexpr (C.minima) {
      SF_EACH_ROW acc[i] = fma(span.minima, load(a + i * a_row), acc[i]);
      a += kLanes;
    }
  }
  SF_EACH_ROW store(sums + i * kSumsRow, acc[i]);
}
#undef SF_EACH_ROW

// Columns c0 .. c1 of the product.
template <WordLayout C>
static void multiply_columns(const WordRows& f, const Epilogue& e, int64_t m, int64_t k, const float* a, int64_t a_row,
                             int64_t c0, int64_t c1) {
  alignas(64) float sums[kWordRows * kSumsRow];
  const int64_t spans = ceil_div(k, C.numbers), deep = kDeepest / C.numbers;
  for (int64_t c = c0; c < c1; c += kWordCols) {
    const int cols = int(min64(kWordCols, c1 - c));
    for (int64_t i = 0; i < m * kSumsRow; ++i) sums[i] = 0;
    for (int64_t s = 0; s < spans; s += deep) {
      const uint8_t* at = f.codes + c * f.row_bytes + s * C.bytes;
      const float* from = a + s * WordFormat<C>::kArranged;
      for (int64_t i = 0, rows; i < m; i += rows, from += rows * a_row) {
        rows = m - i >= 4 ? 4 : m - i >= 2 ? 2 : 1;
        const auto add = rows == 4 ? add_words<C, 4> : rows == 2 ? add_words<C, 2> : add_words<C, 1>;
        for (int j = 0; j < cols; ++j) {
          const uint8_t* row = at + j * f.row_bytes;
          // A row is about a page, too short for the processor's prefetcher: the same part of the next rows.
          for (int64_t y = 0; i == 0 && y < deep * C.bytes; y += 64)
            __builtin_prefetch(row + kWordCols * f.row_bytes + y, 0, 2);
          add(f, row, min64(kDeepest, k - s * C.numbers), from, a_row, sums + i * kSumsRow + j * kLanes);
        }
      }
    }
    finish_dots<kWordCols>(e, m, c, cols, sums);
  }
}

// Whether it pays, and has been done then. a: rows of p as float32, a_row apart, with zeros past p.k up to whole
// vectors. Not for infinities: an offset or a minimum of theirs, taken by itself, leaves NaN.
template <WordLayout C, class P> static bool dot_words(const P& p, const float* a, int64_t a_row, const WordRows& f) {
  if (p.m > kWordRows) return false;
  vf zero(0.f);
  for (int64_t i = 0; i < p.m * a_row; i += kLanes) zero = fma(load(a + i), vf(0.f), zero);
  if (!(reduce_add(zero) == 0)) return false;
  const int64_t row = ceil_div(p.k, C.numbers) * WordFormat<C>::kArranged;
  auto* to = static_cast<float*>(scratch(size_t(p.m * row) * sizeof(float), kSlotB));
  for (int64_t i = 0; i < p.m; ++i) WordFormat<C>::arrange(a + i * a_row, p.k, to + i * row);
  const int64_t work = kWordCols * p.k * max64(2, p.m);
  parallel_for(ceil_div(p.n, kWordCols), ceil_div(kDotWork, max64(1, work)), [&](int64_t begin, int64_t end) {
    multiply_columns<C>(f, p.e, p.m, p.k, to, row, begin * kWordCols, min64(p.n, end * kWordCols));
  });
  return true;
}

}  // namespace SF_ISA
}  // namespace sf
#endif
