// Products with weights whose numbers are decoded on the way: into a strip's rows, 256 at a time, which the strip's
// packing turns as it does those of any matrix (packed_gemm.h). A few megabytes of strips are packed and multiplied
// before the next ones, so that no weight is ever whole in a wider dtype and no packed copy is kept. Few rows of
// activations are dot products with four rows of the weight at a time, decoded into L1: bound by reading the codes
// while arithmetic keeps up.
//
// A decoder D says what a weight's numbers are: decode(row, k0, count, to) writes `count` of them, of that row from k0
// on, a multiple of 256; `to`, of float and perhaps of 16 bits, has room for 256. prefetch(row, k0, count) asks for
// their bytes. plain(row, k0), where there is one: where they lie as numbers of another dtype. pack<K>(dst, row, cols,
// k0, count), where there is one and packs() says so: a whole strip of them.
// multiply_words(p, a, a_row), where there is one, is asked to do few rows in its way (word_dots.h).
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include <type_traits>

#include "scaffolding/ops/matmul/few_rows.h"

namespace sf {
namespace SF_ISA {

constexpr int kDecoded = 256;  // numbers of a row that are decoded at once: a K format's block, or eight of the others

// What multiply_packed() multiplies: b's columns are rows of the weight. Depths begin at multiples of kDecoded.
template <class K, class S, class D> struct DecodedOperands {
  using Src = S;
  // Of b on its way: what the arithmetic packs.
  using Number = std::conditional_t<K::kDepth == 1, float, S>;
  int64_t m, n, k;
  const Src* a;
  int64_t a_m;
  D weight;
  int64_t first;  // column 0 is this row of the weight
  Epilogue e;
  bool* rest = nullptr;  // watch_packing()

  SF_INLINE void pack_a(typename K::Unit* dst, int64_t row, int rows, int64_t k0, int64_t values) const {
    pack<typename K::Left>(dst, rows, a + row * a_m + k0, a_m, 1, rows, values);
    watch_packing<K>(rest);
  }
  SF_INLINE void decode(int64_t row, int64_t k0, int64_t count, Number* to) const {
    if constexpr (requires { weight.decode(row, k0, count, to); }) {
      weight.decode(row, k0, count, to);
    } else {
      alignas(64) float numbers[kDecoded];
      weight.decode(row, k0, count, numbers);
      for (int64_t i = 0; i < count; i += kLanes) store(to + i, load(numbers + i));
    }
  }
  SF_INLINE void pack_b(typename K::Unit* dst, int64_t col, int cols, int64_t k0, int64_t values) const {
    constexpr int NR = kTileCols<K>;
    if constexpr (K::kDepth == 1 && requires { weight.plain(0, 0); }) {  // packing widens them itself
      using Plain = std::remove_cvref_t<decltype(*weight.plain(0, 0))>;
      const Plain* rows[NR];
      for (int i = 0; i < cols; ++i) rows[i] = weight.plain(first + col + i, k0);
      pack_rows<K>(dst, NR, rows, cols, values);
      return watch_packing<K>(rest);
    }
    if constexpr (requires { weight.template pack<K>(dst, first, cols, k0, values); })
      if (weight.packs()) {
        weight.template pack<K>(dst, first + col, cols, k0, values);
        return watch_packing<K>(rest);
      }
    alignas(64) Number numbers[NR * kDecoded];
    const Number* rows[NR];
    for (int i = 0; i < NR; ++i) rows[i] = numbers + i * kDecoded;
    for (int64_t at = 0; at < values; at += kDecoded) {
      const int64_t count = min64(kDecoded, values - at);
      for (int i = 0; i < cols; ++i) decode(first + col + i, k0 + at, count, numbers + i * kDecoded);
      pack_rows<K>(dst + at / K::kDepth * NR, NR, rows, cols, count);
    }
    watch_packing<K>(rest);
  }
};

// Depths of whole blocks, near those of other products.
template <class K> static PackedShape<K> shape_of_blocks(int64_t k, int64_t n) {
  PackedShape<K> s(k, n);
  if (s.blocks > 1) {
    s.block_units = max64(1, (K::kDepthPart * K::kDepth + kDecoded / 2) / kDecoded) * kDecoded / K::kDepth;
    s.blocks = ceil_div(s.units, s.block_units);
  }
  return s;
}

// Bytes of decoded strips at a time: of float32, two megabytes stay in a cache while rows pass by them, and a second
// packing of those rows costs as little as a hundredth of a product with 128 columns.
constexpr int64_t kDecodedBytes = 4 << 20;

template <class K, class P> static void multiply_many_rows(const P& p) {
  const int64_t per_strip = ceil_div(p.k, K::kDepth) * kTileCols<K> * int64_t(sizeof(typename K::Unit));
  const int64_t chunk = max64(8, kDecodedBytes / max64(1, per_strip)) * kTileCols<K>;
  for (int64_t c0 = 0; c0 < p.n; c0 += chunk) {
    P part = p;
    part.n = min64(chunk, p.n - c0);
    part.first += c0;
    part.e = columns(p.e, c0);
    const PackedShape<K> s = shape_of_blocks<K>(p.k, part.n);
    auto* packed = static_cast<typename K::Unit*>(scratch(s.bytes(), kSlotB));
    pack_whole_b<K>(part, s, packed);
    multiply_prepacked<K>(part, s, packed);
  }
}

// Rows up to which decoding for dot products costs less than packing does.
constexpr int64_t kFewRows = 16;

// sums[i][j] += dot products of MR rows of a with four of the weight, `count` numbers of each, a multiple of kLanes.
template <int MR>
[[gnu::noinline]] static void add_dots(const float* a, int64_t a_m, const float* b, int64_t count, float* sums) {
  vf acc[MR][kDotCols];
#pragma GCC unroll 4
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j) acc[i][j] = load(sums + (i * kDotCols + j) * kLanes);
  for (int64_t x = 0; x < count; x += kLanes) {
    vf bv[kDotCols];
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j) bv[j] = load(b + j * kDecoded + x);
#pragma GCC unroll 4
    for (int i = 0; i < MR; ++i) {
      const vf av = load(a + i * a_m + x);
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) acc[i][j] = fma(av, bv[j], acc[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j) store(sums + (i * kDotCols + j) * kLanes, acc[i][j]);
}

// Sums of m rows and kCols columns from c on, of which `cols` are there.
template <int kCols> static void finish_dots(const Epilogue& e, int64_t m, int64_t c, int cols, const float* sums) {
  for (int64_t i = 0; i < m; ++i) {
    alignas(64) float tile[kTileCols<MulF32>] = {};  // vectors of it are read whole
    for (int j = 0; j < cols; ++j) tile[j] = reduce_add(load(sums + (i * kCols + j) * kLanes));
    finish_tile(e, i, 1, c, cols, tile, kTileCols<MulF32>);
  }
}

// Columns c0 .. c1 of the product; a is p.m rows of floats, a_row apart, with zeros past p.k up to whole vectors.
template <class P> static void multiply_few_rows(const P& p, const float* a, int64_t a_row, int64_t c0, int64_t c1) {
  alignas(64) float numbers[kDotCols * kDecoded], sums[kFewRows * kDotCols * kLanes];
  for (int64_t c = c0; c < c1; c += kDotCols) {
    const int cols = int(min64(kDotCols, c1 - c));
    for (int64_t i = 0; i < p.m * kDotCols * kLanes; ++i) sums[i] = 0;
    for (int64_t k = 0; k < p.k; k += kDecoded) {
      const int64_t count = min64(kDecoded, p.k - k);
      for (int j = 0; j < kDotCols; ++j) {  // past the last column the last one again: its sums are not used
        const int64_t row = p.first + c + min64(j, cols - 1);
        // A row is about a page, too short for the processor's prefetcher: the same part of the next four rows.
        p.weight.prefetch(row + kDotCols, k, count);
        p.weight.decode(row, k, count, numbers + j * kDecoded);
        for (int64_t x = count; x % kLanes; ++x) numbers[j * kDecoded + x] = 0;
      }
      const int64_t padded = ceil_div(count, kLanes) * kLanes;
      int64_t i = 0;
      for (; i + kDotRows <= p.m; i += kDotRows)
        add_dots<kDotRows>(a + i * a_row + k, a_row, numbers, padded, sums + i * kDotCols * kLanes);
      for (; i < p.m; ++i) add_dots<1>(a + i * a_row + k, a_row, numbers, padded, sums + i * kDotCols * kLanes);
    }
    finish_dots<kDotCols>(p.e, p.m, c, cols, sums);
  }
}

// a, c: of C (CodedProduct, GgufProduct).
template <class K, class S, class C, class D>
static DecodedOperands<K, S, D> decoded_operands(const C& call, const D& weight, bool* rest = nullptr) {
  Epilogue e{};
  e.c = call.c.data, e.c_row = call.c.strides[0], e.c_type = call.c.dtype, e.act = call.act, e.alpha = 1, e.beta = 0;
  if (call.bias) e.bias = call.bias.data, e.bias_type = call.bias.dtype;
  if (call.residual)
    e.residual = call.residual.data, e.residual_row = call.residual.strides[0], e.residual_type = call.residual.dtype;
  return {call.c.sizes[0],
          call.c.sizes[1],
          call.a.sizes[1],
          call.a.template as<const S>(),
          call.a.strides[0],
          weight,
          0,
          e,
          rest};
}

template <class S, class C, class D> static void multiply_decoded(const C& call, const D& weight) {
  const auto p = decoded_operands<MulF32, S>(call, weight);
  if (p.m > kFewRows) return multiply_many_rows<MulF32>(p);
  const int64_t a_row = ceil_div(p.k, kLanes) * kLanes;
  auto* floats = static_cast<float*>(scratch(size_t(p.m * a_row) * sizeof(float) + kPackSlack, kSlotA));
  for (int64_t i = 0; i < p.m; ++i) {
    int64_t k = 0;
    for (; k + kLanes <= p.k; k += kLanes) store(floats + i * a_row + k, load(p.a + i * p.a_m + k));
    if (k < p.k) store(floats + i * a_row + k, load_n(p.a + i * p.a_m + k, int(p.k - k)));
  }
  if constexpr (requires { weight.multiply_words(p, floats, a_row); })
    if (weight.multiply_words(p, floats, a_row)) return;
  const int64_t groups = ceil_div(p.n, kDotCols), work = kDotCols * p.k * max64(2, p.m);
  parallel_for(groups, ceil_div(kDotWork, max64(1, work)), [&](int64_t begin, int64_t end) {
    multiply_few_rows(p, floats, a_row, begin * kDotCols, min64(p.n, end * kDotCols));
  });
}

// In the dtype of the activations; many rows of bfloat16 in its own arithmetic where there is one: the weight's numbers
// are rounded to it then.
template <class C, class D> static void multiply_any(const C& call, const D& weight) {
#if defined(__AVX512BF16__)
  if (call.a.dtype == kBFloat16 && call.c.sizes[0] > kFewRows)
    return multiply_many_rows<MulBF16>(decoded_operands<MulBF16, BFloat16>(call, weight));
#endif
  switch (call.a.dtype) {
    case kFloat16: return multiply_decoded<Half>(call, weight);
    case kBFloat16: return multiply_decoded<BFloat16>(call, weight);
    default: return multiply_decoded<float>(call, weight);
  }
}

}  // namespace SF_ISA
}  // namespace sf
