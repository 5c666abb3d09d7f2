// Rows of weights in codes of four and eight bits, as decoders (decoded_product.h).
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/backend/cpu/bf16_pairs.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/fp8_widen.h"
#include "scaffolding/ops/quantize/word_dots.h"

namespace sf {
namespace SF_ISA {

// Four bits a number, in blocks that do not begin anew with a row.
struct NibbleRows {
  const uint8_t* codes;
  int64_t k, block;
  BlockScales scales;
  const float* table;
  template <class To> SF_INLINE void decode(int64_t row, int64_t k0, int64_t count, To* to) const {
    const int64_t first = row * k + k0;
    for (int64_t i = 0; i < count;) {
      const int64_t at = first + i, b = at / block, end = min64(count, (b + 1) * block - first);
      const vf scale(scales(b));
      if (at % 2 == 0)
        for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
          vf one, two;
          look_up(table, codes + (first + i) / 2, one, two);
          store(to + i, one * scale);
          store(to + i + kLanes, two * scale);
        }
      for (; i < end; ++i) store_n(to + i, vf(nibble_at(table, codes, first + i)) * scale, 1);
    }
  }
  SF_INLINE void prefetch(int64_t row, int64_t k0, int64_t count) const {
    for (int64_t i = 0; i < count; i += 128) __builtin_prefetch(codes + (row * k + k0 + i) / 2, 0, 2);
  }

#if defined(__AVX2__)
  static constexpr int kOfWord = 8;  // codes
  SF_INLINE bool packs() const { return k % block == 0 && block % kOfWord == 0; }
#if defined(__AVX512F__)
  template <class P> bool multiply_words(const P& p, const float* a, int64_t a_row) const {
    constexpr WordLayout C{8 * kLanes, 4 * kLanes, 4, 1, 8, 0, 0, 0, 0, 0, 0, true};
    const WordRows rows{codes, k / 2, table, scales, __builtin_ctzll(uint64_t(block))};
    return packs() && dot_words<C>(p, a, a_row, rows);
  }
#endif
  // A strip of columns, rows of the weight from `row` on: words of codes are turned as they lie and looked up in all
  // columns at once.
  template <class K>
  requires(K::kDepth <= 2)  // vectors of numbers or of pairs
      [[gnu::noinline]] void pack(typename K::Unit* dst, int64_t row, int cols, int64_t k0, int64_t values) const {
    constexpr int L = kLanes, NR = kTileCols<K>;
    const int64_t blocks = k / block, of_block = block / kOfWord, row_bytes = k / 2;
    const NibbleTable numbers(table);
    for (int w = 0; w < NR; w += L) {
      const int n = int(max64(0, min64(L, cols - w)));
      auto* to = dst + w;
      int64_t b = k0 / block, left = of_block - k0 % block / kOfWord;  // words of the block that are not read yet
      vf scale = scales_of((row + w) * blocks + b, blocks, n);
      for (int64_t at = 0; at < values; at += L * kOfWord) {
        const int words = int(min64(L, (values - at) / kOfWord));
        MulF32::Vec r[L];
        const uint8_t* from = codes + (row + w) * row_bytes + (k0 + at) / 2;
        if (n == L) {
#pragma GCC unroll 16
          for (int i = 0; i < L; ++i, from += row_bytes) {
            __builtin_prefetch(from + NR * row_bytes, 0, 2);  // the next strip: a row is too short for prefetchers
            r[i] = (MulF32::Vec)load_words(from, words);
          }
        } else {
#pragma GCC unroll 16
          for (int i = 0; i < L; ++i, from += row_bytes)
            r[i] = i < n ? (MulF32::Vec)load_words(from, words) : MulF32::Vec{};
        }
        transpose<MulF32::Vec, L>(r);
        for (int t = 0; t < words; ++t, --left) {
          if (left == 0) left = of_block, scale = scales_of((row + w) * blocks + ++b, blocks, n);
          const auto word = (NibbleWords)r[t];
          put<K, 0>(to, numbers, word, scale), put<K, 1>(to, numbers, word, scale);
          put<K, 2>(to, numbers, word, scale), put<K, 3>(to, numbers, word, scale);
        }
      }
    }
  }

 private:
  // The magnitudes of n blocks, `apart` from one another.
  SF_INLINE vf scales_of(int64_t first, int64_t apart, int n) const {
    alignas(64) float s[kLanes] = {};
    for (int i = 0; i < n; ++i) s[i] = scales(first + i * apart);
    return load(s);
  }
  // Byte kByte of the words: the earlier number is in its upper bits.
  template <class K, int kByte>
  SF_INLINE static void put(typename K::Unit*& to, const NibbleTable& numbers, NibbleWords word, vf scale) {
    constexpr int NR = kTileCols<K>;
    const vf one = numbers(shifted<8 * kByte + 4>(word)) * scale, two = numbers(shifted<8 * kByte>(word)) * scale;
    if constexpr (K::kDepth == 1) {
      store_vec<K>(to, one.v), store_vec<K>(to + NR, two.v);
      to += 2 * NR;
    }
#if defined(__AVX512BF16__)
    else {
      store_vec<K>(to, join(one, two));
      to += NR;
    }
#endif
  }
#endif
};

struct Int8Rows {
  const int8_t* codes;
  int64_t k;
  const float* scales;
  float unit;
  SF_INLINE void decode(int64_t row, int64_t k0, int64_t count, float* to) const {
    const int8_t* from = codes + row * k + k0;
    const float scale = scales[row];
    for (int64_t i = 0; i < count; ++i) to[i] = float(int(from[i])) * scale * unit;
  }
  SF_INLINE void prefetch(int64_t row, int64_t k0, int64_t count) const {
    for (int64_t i = 0; i < count; i += 64) __builtin_prefetch(codes + row * k + k0 + i, 0, 2);
  }
};

template <class Q> struct Float8Rows {
  const uint8_t* codes;
  int64_t k;
  const float* scales;
  bool by_row;
  template <class To> SF_INLINE void decode(int64_t row, int64_t k0, int64_t count, To* to) const {
    const uint8_t* from = codes + row * k + k0;
    const vf scale(scales[by_row ? row : 0]);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, widen<Q>(from + i) * scale);
    if (i == count) return;
    uint8_t last[kLanes] = {};
    std::memcpy(last, from + i, size_t(count - i));
    store_n(to + i, widen<Q>(last) * scale, int(count - i));
  }
  SF_INLINE void prefetch(int64_t row, int64_t k0, int64_t count) const {
    for (int64_t i = 0; i < count; i += 64) __builtin_prefetch(codes + row * k + k0 + i, 0, 2);
  }
};

// Numbers of 16 bits as they are.
template <class T> struct HalfRows {
  const T* numbers;
  int64_t k;
  SF_INLINE const T* plain(int64_t row, int64_t k0) const { return numbers + row * k + k0; }
  template <class To> SF_INLINE void decode(int64_t row, int64_t k0, int64_t count, To* to) const {
    const T* from = plain(row, k0);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
    if (i < count) store_n(to + i, load_n(from + i, int(count - i)), int(count - i));
  }
  SF_INLINE void prefetch(int64_t row, int64_t k0, int64_t count) const {
    for (int64_t i = 0; i < count; i += 32) __builtin_prefetch(numbers + row * k + k0 + i, 0, 2);
  }
};

// f(the decoder of p's weight)
template <class F> SF_INLINE void visit_rows(const CodedProduct& p, const F& f) {
  const int64_t k = p.a.sizes[1];
  const auto* bytes = static_cast<const uint8_t*>(p.codes.data);
  switch (p.format) {
    case CodedFormat::Nf4:
    case CodedFormat::Fp4: {
      const float* table = p.format == CodedFormat::Nf4 ? kNf4.v : kFp4.v;
      return f(NibbleRows{bytes, k, p.block, block_scales(p.scales, p.nested, p.offset), table});
    }
    case CodedFormat::Int8: return f(Int8Rows{p.codes.as<const int8_t>(), k, p.scales.as<const float>(), p.unit});
    case CodedFormat::E4m3:
      return f(Float8Rows<Float8E4M3>{bytes, k, p.scales.as<const float>(), p.scales.numel() > 1});
    case CodedFormat::E5m2:
      return f(Float8Rows<Float8E5M2>{bytes, k, p.scales.as<const float>(), p.scales.numel() > 1});
    case CodedFormat::Half: return f(HalfRows<Half>{p.codes.as<const Half>(), k});
    case CodedFormat::BFloat: return f(HalfRows<BFloat16>{p.codes.as<const BFloat16>(), k});
  }
}

}  // namespace SF_ISA
}  // namespace sf
