// Gated projections as matrix products: a strip of packed weights holds a vector of hidden columns and the vector of
// their gates, so that the tile of sums has both when it is finished.
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/ops/fused/linear_act/kernel.h"
#include "scaffolding/ops/matmul/row_gemm.h"
#include "scaffolding/ops/matmul/two_parts.h"

namespace sf {
namespace SF_ISA {

// y = hidden * act(gate) from the sums of one strip. Stands in for Epilogue (epilogue.h).
struct GatedEpilogue {
  void* c;
  int64_t c_row;
  DType c_type;
  Activation act;
  const void *bias_hidden, *bias_gate;
  DType bias_type;
  int64_t columns;  // of c

  SF_INLINE bool plain() const { return false; }
};

// `col` counts columns of the packed operand: half of them are columns of c.
[[gnu::noinline]] inline void finish_tile(const GatedEpilogue& e, int64_t row, int rows, int64_t col, int,
                                          const float* sums, int64_t sums_row) {
  const int64_t j = col / 2;
  const int n = int(min64(e.columns - j, kLanes));
  const vf bias_hidden = e.bias_hidden ? load_as(e.bias_hidden, e.bias_type, j, n) : vf(0.f);
  const vf bias_gate = e.bias_gate ? load_as(e.bias_gate, e.bias_type, j, n) : vf(0.f);
  for (int i = 0; i < rows; ++i) {
    const vf hidden = load(sums + i * sums_row) + bias_hidden, gate = load(sums + i * sums_row + kLanes) + bias_gate;
    store_as(e.c, e.c_type, (row + i) * e.c_row + j, hidden * activate(e.act, gate), n);
  }
}

// What multiply_prepacked() multiplies (packed_gemm.h): n columns in strips of one vector of hidden and one of gates.
// Behind the first `split` values of k come those of the side path, if there is one.
template <class K, class S> struct GatedProduct {
  static_assert(kTileVecs == 2);
  using Src = S;
  int64_t m, n, k;
  const Src* a;
  int64_t a_m, a_k;
  const Src *hidden, *gate;
  int64_t row;  // stride between columns of the product: rows of the weights
  GatedEpilogue e;
  int64_t split;
  const Src* h = nullptr;
  int64_t h_m = 0;
  const Src *up_hidden = nullptr, *up_gate = nullptr;
  int64_t up_row = 0;
  bool* rest = nullptr;  // watch_packing()

  SF_INLINE void pack_a(typename K::Unit* dst, int64_t at, int count, int64_t k0, int64_t values) const {
    auto part = [&](const Src* from, int64_t rows, int64_t along) {
      return [=](typename K::Unit* to, int64_t first, int64_t depth) {
        pack<typename K::Left>(to, count, from + at * rows + first * along, rows, along, count, depth);
      };
    };
    pack_two_parts<K>(dst, count, k0, values, split, part(a, a_m, a_k), part(h, h_m, 1));
    watch_packing<K>(rest);
  }
  // Past the last column the last one again: its sums are not used.
  SF_INLINE void pack_b(typename K::Unit* dst, int64_t col, int, int64_t k0, int64_t values) const {
    constexpr int L = kVecLanes<K>;
    auto part = [&](const Src* of_hidden, const Src* of_gate, int64_t stride) {
      return [=, this](typename K::Unit* to, int64_t first, int64_t depth) {
        const Src* rows[2 * L];
        for (int i = 0; i < L; ++i) {
          const int64_t from = min64(col / 2 + i, e.columns - 1) * stride + first;
          rows[i] = of_hidden + from;
          rows[L + i] = of_gate + from;
        }
        pack_rows<K>(to, 2 * L, rows, 2 * L, depth);
      };
    };
    pack_two_parts<K>(dst, 2 * L, k0, values, split, part(hidden, gate, row), part(up_hidden, up_gate, up_row));
    watch_packing<K>(rest);
  }
};

// float32 reads one operand where it lies (row_gemm.h): activations with strips of weights,
// or weights with strips of activations.
struct StoreGated {
  GatedEpilogue e;
  SF_INLINE float* place(int64_t, int64_t, int64_t&) const { return nullptr; }
  SF_INLINE const float* bias(int64_t) const { return nullptr; }
  SF_INLINE void will_write(int64_t row, int rows, int64_t column, int) const {
    SF_ISA::will_write(e.c, e.c_row, e.c_type, row, rows, column / 2, int(min64(e.columns - column / 2, kLanes)));
  }
  SF_INLINE void operator()(int64_t row, int rows, int64_t column, int columns, const float* sums) const {
    finish_tile(e, row, rows, column, columns, sums, kTileCols<MulF32>);
  }
};
// Rows of tiles are columns of y: first those of hidden, then those of gate.
struct StoreGatedTurned {
  GatedEpilogue e;
  SF_INLINE float* place(int64_t, int64_t, int64_t&) const { return nullptr; }
  SF_INLINE const float* bias(int64_t) const { return nullptr; }
  SF_INLINE void will_write(int64_t row, int rows, int64_t column, int columns) const {
    SF_ISA::will_write(e.c, e.c_row, e.c_type, column, columns, row, rows);
  }
  SF_INLINE void operator()(int64_t row, int rows, int64_t column, int columns, const float* sums) const {
    constexpr int NR = kTileCols<MulF32>;
    alignas(64) float gated[kTileRows / 2 * NR], turned[NR * kLanes];
    auto bias_of = [&](const void* bias, int64_t i) { return bias ? load_as(bias, e.bias_type, i, 1)[0] : 0.f; };
    for (int i = 0; i < rows; ++i) {
      const vf bias_hidden(bias_of(e.bias_hidden, row + i)), bias_gate(bias_of(e.bias_gate, row + i));
      for (int j = 0; j < NR; j += kLanes)
        store(gated + i * NR + j,
              (load(sums + i * NR + j) + bias_hidden) * activate(e.act, load(sums + (rows + i) * NR + j) + bias_gate));
    }
    turn_tile<kTileRows / 2>(turned, gated, rows);
    for (int j = 0; j < columns; ++j)
      store_as(e.c, e.c_type, (column + j) * e.c_row + row, load(turned + j * kLanes), rows);
  }
};

inline void run_lying(const GatedProduct<MulF32, float>& p) {
  const int64_t columns = p.e.columns;
  if (p.m < columns) {
    const PackedShape<MulF32> s(p.k, p.m);
    const Product<MulF32, float> strips{columns, p.m, p.k, nullptr, 0, 0, p.a, p.a_k, p.a_m, {}};
    float* packed = static_cast<float*>(scratch(s.bytes(), kSlotB));
    pack_whole_b<MulF32>(strips, s, packed);
    return multiply_rows(LyingRows<2>{{p.hidden, p.gate}, p.row}, columns, s, packed, p.m, StoreGatedTurned{p.e});
  }
  const PackedShape<MulF32> s(p.k, p.n);
  float* packed = static_cast<float*>(scratch(s.bytes(), kSlotB));
  pack_whole_b<MulF32>(p, s, packed);
  multiply_rows(LyingRows<1>{{p.a}, p.a_m}, p.m, s, packed, p.n, StoreGated{p.e});
}

// A packed copy is kept where packing is a large part of the work, as for plain products (gemm.cpu.cpp).
constexpr int64_t kFewestRows = 16, kKeepRows = 512;
constexpr uint32_t kFormat = 20;  // in PackedKey

template <class K, class Src> static void run(const GatedLinear& g, bool* rest = nullptr) {
  const int64_t m = g.y.sizes[0], columns = g.y.sizes[1];
  auto strips_of = [](int64_t n) { return ceil_div(n, kVecLanes<K>); };
  GatedProduct<K, Src> p{
      m,
      strips_of(columns) * kTileCols<K>,
      g.a.sizes[1] + (g.h ? g.h.sizes[1] : 0),
      g.a.as<const Src>(),
      g.a.strides[0],
      g.a.strides[1],
      g.hidden.as<const Src>(),
      g.gate.as<const Src>(),
      g.hidden.strides[0],
      {g.y.data, g.y.strides[0], g.y.dtype, g.act, g.bias_hidden ? g.bias_hidden.data : nullptr,
       g.bias_gate ? g.bias_gate.data : nullptr, g.bias_hidden ? g.bias_hidden.dtype : kFloat32, columns},
      g.a.sizes[1]};
  if (g.h) {
    p.h = g.h.as<const Src>(), p.h_m = g.h.strides[0];
    p.up_hidden = g.up_hidden.as<const Src>(), p.up_gate = g.up_gate.as<const Src>(), p.up_row = g.up_gate.strides[0];
  }
  p.rest = rest;
  const bool lies = std::is_same_v<K, MulF32> && sizeof(Src) == 4 && p.a_k == 1 && !g.h;
  if (g.weight_version && m <= kKeepRows && !lies && !g.h) {
    const PackedShape<K> s(p.k, p.n);
    const cpu::PackedKey key{p.hidden,
                             g.weight_version,
                             kFormat + SF_ISA_PRIORITY,
                             {int64_t(g.a.dtype), p.k, columns, p.row, p.gate - p.hidden},
                             sizeof(typename K::Unit)};
    auto fill = [&](void* to) {
      pack_whole_b<K>(p, s, static_cast<typename K::Unit*>(to));
      remember_rest<K>(p, s, to);
    };
    cpu::PackedWeight kept(key, s.bytes(), fill);
    if (kept.get()) {
      recall_rest<K>(p, s, kept.get());
      return multiply_prepacked<K>(p, s, static_cast<const typename K::Unit*>(kept.get()));
    }
  }
  const int64_t per_strip = max64(1, ceil_div(p.k, K::kDepth) * kTileCols<K> * int64_t(sizeof(typename K::Unit)));
  const int64_t chunk = max64(8, kPackedBytes / per_strip) * kVecLanes<K>;
  for (int64_t c0 = 0; c0 < columns; c0 += chunk) {
    GatedProduct<K, Src> part = p;
    part.e.columns = min64(chunk, columns - c0);
    part.n = strips_of(part.e.columns) * kTileCols<K>;
    part.hidden += c0 * p.row;
    part.gate += c0 * p.row;
    if (g.h) part.up_hidden += c0 * p.up_row, part.up_gate += c0 * p.up_row;
    part.e.c = advance(p.e.c, p.e.c_type, c0);
    part.e.bias_hidden = advance(p.e.bias_hidden, p.e.bias_type, c0);
    part.e.bias_gate = advance(p.e.bias_gate, p.e.bias_type, c0);
    if constexpr (std::is_same_v<K, MulF32> && sizeof(Src) == 4)
      if (lies) {
        run_lying(part);
        continue;
      }
    const PackedShape<K> s(p.k, part.n);
    auto* packed = static_cast<typename K::Unit*>(scratch(s.bytes(), kSlotB));
    pack_whole_b<K>(part, s, packed);
    multiply_prepacked<K>(part, s, packed);
  }
}

static bool supports(const GatedLinear& g) {
  const DType t = g.y.dtype;
  if (t != kFloat32 && !is_reduced(t)) return false;
  if (g.a.dtype != t || g.hidden.dtype != t || g.gate.dtype != t) return false;
  if (g.h && (g.h.dtype != t || g.a.sizes[1] % 2 != 0 || g.h.strides[1] != 1 || g.up_hidden.strides[1] != 1 ||
              g.up_gate.strides[1] != 1 || g.up_hidden.strides[0] != g.up_gate.strides[0]))
    return false;
  // A few rows: reading the weights is all there is to do, and plain products do that without packing.
  return g.y.sizes[0] >= kFewestRows && g.y.strides[1] == 1 && g.hidden.strides[1] == 1 && g.gate.strides[1] == 1 &&
         g.hidden.strides[0] == g.gate.strides[0];
}

}  // namespace SF_ISA
}  // namespace sf
