// Rows of weights in codes of four and eight bits, as decoders (decoded_product.h).
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/decoded_product.h"
#include "scaffolding/ops/quantize/fp8_widen.h"
#include "scaffolding/ops/quantize/nibbles.h"

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
