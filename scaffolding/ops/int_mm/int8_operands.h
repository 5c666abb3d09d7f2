// What multiplies int8: operands of packed_gemm.h and conv_product.h, with what vpdpbusd (int8_dots.h) needs besides.
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/int_mm/int8_lines.h"
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

template <class K> inline constexpr bool kHasOffset = false;
template <class K>
requires(K::kOffset) inline constexpr bool kHasOffset<K> = true;

// What is added to the sums of each column, int32.
SF_INLINE int32_t* corrections(const Epilogue& e) { return static_cast<int32_t*>(const_cast<void*>(e.bias)); }

// Takes what comes in too much from correction[cols], of int32, zero at first (int8_dots.h).
template <class K> void subtract_offset(const typename K::Unit* packed, int cols, int64_t units, int32_t* correction);

// P: Product, ConvProduct. Where rows of a are packed with 128 added, corrections(e) takes it back.
template <class K, class P> struct Int8Operands : P {
  SF_INLINE void pack_b(typename K::Unit* dst, int64_t col, int cols, int64_t k0, int64_t values) const {
    P::pack_b(dst, col, cols, k0, values);
    if constexpr (kHasOffset<K>)
      subtract_offset<K>(dst, cols, (values + K::kDepth - 1) / K::kDepth, corrections(this->e) + col);
  }
};

// Corrections of n columns, zero; null where K needs none.
template <class K> SF_INLINE int32_t* new_corrections(int64_t n) {
  if constexpr (!kHasOffset<K>) return nullptr;
  const size_t bytes = size_t(n) * sizeof(int32_t);
  void* p = scratch(bytes, kSlotColumns);
  std::memset(p, 0, bytes);
  return static_cast<int32_t*>(p);
}

}  // namespace SF_ISA
}  // namespace sf
