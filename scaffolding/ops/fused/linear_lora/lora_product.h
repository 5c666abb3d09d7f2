// A product and its side path as one matrix product.
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/fused/linear_lora/kernel.h"
#include "scaffolding/ops/matmul/two_parts.h"

namespace sf {
namespace SF_ISA {

// What multiply_prepacked() multiplies (packed_gemm.h).
template <class K, class S> struct LoraProduct {
  using Src = S;
  int64_t m, n, k;  // k counts both parts
  const Src *a, *h;
  int64_t a_m, h_m;
  const Src *b, *up;
  int64_t b_n, up_n;
  int64_t split;  // of k
  Epilogue e;
  bool* rest = nullptr;  // watch_packing()

  SF_INLINE void pack_a(typename K::Unit* dst, int64_t row, int rows, int64_t k0, int64_t values) const {
    auto part = [&](const Src* from, int64_t stride) {
      return [=](typename K::Unit* to, int64_t at, int64_t count) {
        pack<typename K::Left>(to, rows, from + row * stride + at, stride, 1, rows, count);
      };
    };
    pack_two_parts<K>(dst, rows, k0, values, split, part(a, a_m), part(h, h_m));
    watch_packing<K>(rest);
  }
  SF_INLINE void pack_b(typename K::Unit* dst, int64_t col, int cols, int64_t k0, int64_t values) const {
    auto part = [&](const Src* from, int64_t stride) {
      return [=](typename K::Unit* to, int64_t at, int64_t count) {
        pack<K>(to, kTileCols<K>, from + col * stride + at, stride, 1, cols, count);
      };
    };
    pack_two_parts<K>(dst, kTileCols<K>, k0, values, split, part(b, b_n), part(up, up_n));
    watch_packing<K>(rest);
  }
};

template <class K, class Src> static void run(const LinearLora& g, bool* rest = nullptr) {
  const int64_t k = g.a.sizes[1];
  Epilogue e{};
  e.c = g.y.data, e.c_row = g.y.strides[0], e.c_type = g.y.dtype, e.alpha = 1;
  if (g.bias) e.bias = g.bias.data, e.bias_type = g.bias.dtype;
  const LoraProduct<K, Src> whole{g.y.sizes[0],
                                  g.y.sizes[1],
                                  k + g.h.sizes[1],
                                  g.a.as<const Src>(),
                                  g.h.as<const Src>(),
                                  g.a.strides[0],
                                  g.h.strides[0],
                                  g.b.as<const Src>(),
                                  g.up.as<const Src>(),
                                  g.b.strides[0],
                                  g.up.strides[0],
                                  k,
                                  e,
                                  rest};
  const int64_t per_strip = max64(1, ceil_div(whole.k, K::kDepth) * kTileCols<K> * int64_t(sizeof(typename K::Unit)));
  const int64_t chunk = max64(8, kPackedBytes / per_strip) * kTileCols<K>;
  for (int64_t c0 = 0; c0 < whole.n; c0 += chunk) {
    LoraProduct<K, Src> part = whole;
    part.n = min64(chunk, whole.n - c0);
    part.b += c0 * part.b_n;
    part.up += c0 * part.up_n;
    part.e = columns(whole.e, c0);
    const PackedShape<K> s(part.k, part.n);
    auto* packed = static_cast<typename K::Unit*>(scratch(s.bytes(), kSlotB));
    pack_whole_b<K>(part, s, packed);
    multiply_prepacked<K>(part, s, packed);
  }
}

}  // namespace SF_ISA
}  // namespace sf
