// Products of int8 on vectors, as arithmetic for packed_gemm.h.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
//
// MulVnni: vpdpbusd adds four products of an unsigned byte and a signed one to a lane of int32, modulo 2^32. Rows of a
// are made unsigned by adding 128; 128 times the sum of each column of b, which comes in too much, is subtracted from
// the finished sums (Epilogue::bias): exact for all operands.
// MulPairs: any processor: bytes are widened to 16 bits when they are packed, and pairs are multiplied and added, which
// fits 32 bits always. (vpmaddubsw, which takes bytes, saturates.)
#pragma once
#include "scaffolding/backend/cpu/int8_dot.h"
#include "scaffolding/ops/int_mm/int8_operands.h"
#include "scaffolding/ops/matmul/packed_gemm.h"

namespace sf {
namespace SF_ISA {

struct Int8Packing : Packing {
  using Unit = uint32_t;
  using Acc = int32_t;
  typedef uint32_t Vec __attribute__((vector_size(kVecBytes)));  // unsigned: sums wrap around
  SF_INLINE static Vec splat(Unit x) { return x - Vec{}; }
};

// Strips as four bytes of each lane: dst[k / 4][width], as they are or with 128 added.
template <bool kUnsigned> struct WholeFours {
  using Unit = uint32_t;
  SF_INLINE static void store(Unit* dst, int64_t, int64_t, int64_t, Fours x) {
    if constexpr (kUnsigned) x ^= 0x80808080u;
    std::memcpy(static_cast<void*>(dst), &x, sizeof x);
  }
  static constexpr int kDepth = 4;
};
// As two pairs of 16 bits: dst[k / 2][width].
struct WidePairs {
  using Unit = uint32_t;
  static constexpr int kDepth = 2;
  SF_INLINE static void store(Unit* dst, int64_t width, int64_t k, int64_t depth, Fours x) {
    typedef int32_t Signed __attribute__((vector_size(kVecBytes)));
    const Signed s = (Signed)x;
    const Fours low = ((Fours)(s << 24 >> 24) & 0xffff) | ((Fours)(s << 16 >> 24) << 16);
    std::memcpy(static_cast<void*>(dst), &low, sizeof low);
    if (k + 2 >= depth) return;
    const Fours high = ((Fours)(s << 8 >> 24) & 0xffff) | ((Fours)(s >> 24) << 16);
    std::memcpy(static_cast<void*>(dst + width), &high, sizeof high);
  }
};

// From the last vector to the first, as in pack.h: what is stored past the strip's width is overwritten.
template <class Form>
[[gnu::noinline]] void pack_int8_rows(uint32_t* dst, int width, const int8_t* const* rows, int count, int64_t depth) {
  constexpr int L = kLanes;
  for (int w = (width - 1) / L * L; w >= 0; w -= L) {
    const int n = count - w < 0 ? 0 : count - w < L ? count - w : L;
    for (int64_t k = 0; k < depth; k += 4 * L) {
      Fours r[L];
      turned(rows + w, n, k, depth, r);
      if (k + 4 * L <= depth) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i)
          Form::store(dst + (k + 4 * i) / Form::kDepth * width + w, width, k + 4 * i, depth, r[i]);
        continue;
      }
      for (int i = 0; i < L && k + 4 * i < depth; ++i)
        Form::store(dst + (k + 4 * i) / Form::kDepth * width + w, width, k + 4 * i, depth, r[i]);
    }
  }
}
template <class Form> [[gnu::noinline]] void pack_int8(uint32_t* dst, int width, Bytes from, int count, int64_t depth) {
  constexpr int L = kLanes;
  if (from.ks == 1 && from.ws != 1) {
    const int8_t* rows[kTileVecs * kLanes];
    for (int i = 0; i < count; ++i) rows[i] = from.src + i * from.ws;
    return pack_int8_rows<Form>(dst, width, rows, count, depth);
  }
  for (int w = (width - 1) / L * L; w >= 0; w -= L) {
    const int n = count - w < 0 ? 0 : count - w < L ? count - w : L;
    for (int64_t k = 0; k < depth; k += 4)
      Form::store(dst + k / Form::kDepth * width + w, width, k, depth, from.fours(w, n, k, depth));
  }
}

#if defined(__AVX2__)
#define SF_HAS_MUL_VNNI 1
struct MulVnni : Int8Packing {
  struct Left : WholeFours<true> {};
  using Right = WholeFours<false>;
  static constexpr int kDepth = 4;
  static constexpr bool kOffset = true;
  // As an instruction: the flags of this file's instruction set do not have it, the processor was asked.
  SF_INLINE static Vec mul_add(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
    asm("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
#endif
    return c;
  }
};
#endif

struct MulPairs : Int8Packing {
  struct Left : WidePairs {};
  using Right = WidePairs;
  static constexpr int kDepth = 2;
  static constexpr bool kOffset = false;
  SF_INLINE static Vec mul_add(Vec a, Vec b, Vec c) {
#if defined(__AVX512BW__)
    return c + (Vec)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return c + (Vec)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return c + (Vec)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    typedef int32_t Signed __attribute__((vector_size(kVecBytes)));
    const Signed x = (Signed)a, y = (Signed)b;
    return c + (Vec)((x << 16 >> 16) * (y << 16 >> 16)) + (Vec)((x >> 16) * (y >> 16));
#endif
  }
};

template <class K>
requires std::is_base_of_v<Int8Packing, K>
struct Packer<K, int8_t> {  // columns of b
  using Unit = uint32_t;
  SF_INLINE static void rows(Unit* dst, int width, const int8_t* const* from, int count, int64_t depth) {
    pack_int8_rows<typename K::Right>(dst, width, from, count, depth);
  }
  SF_INLINE static void strided(Unit* dst, int width, const int8_t* src, int64_t ws, int64_t ks, int count,
                                int64_t depth) {
    pack_int8<typename K::Right>(dst, width, {src, ws, ks}, count, depth);
  }
};
template <class Left>
requires(std::is_base_of_v<WholeFours<true>, Left> ||
         std::is_base_of_v<WidePairs, Left>) struct Packer<Left, int8_t> {  // rows of a
  using Unit = uint32_t;
  SF_INLINE static void rows(Unit* dst, int width, const int8_t* const* from, int count, int64_t depth) {
    pack_int8_rows<Left>(dst, width, from, count, depth);
  }
  SF_INLINE static void strided(Unit* dst, int width, const int8_t* src, int64_t ws, int64_t ks, int count,
                                int64_t depth) {
    pack_int8<Left>(dst, width, {src, ws, ks}, count, depth);
  }
};

// f(the arithmetic of this processor)
template <class F> SF_INLINE void with_int8_arithmetic(const F& f) {
#if defined(SF_HAS_MUL_VNNI)
  if (cpu::int8_dot_of_bytes(kVecBytes)) return f(MulVnni{});
#endif
  f(MulPairs{});
}

// Blocks along k of the same columns may be packed by other threads meanwhile.
template <class K>
[[gnu::noinline]] void subtract_offset(const typename K::Unit* packed, int cols, int64_t units, int32_t* correction) {
  typename K::Vec sums[kTileVecs] = {};
  for (int64_t k = 0; k < units; ++k, packed += kTileCols<K>)
    for (int j = 0; j < kTileVecs; ++j)
      sums[j] = K::mul_add(K::splat(0x80808080u), load_vec<K>(packed + j * kLanes), sums[j]);
  for (int i = 0; i < cols; ++i)
    __atomic_fetch_sub(correction + i, int32_t(sums[i / kLanes][i % kLanes]), __ATOMIC_RELAXED);
}

}  // namespace SF_ISA
}  // namespace sf
