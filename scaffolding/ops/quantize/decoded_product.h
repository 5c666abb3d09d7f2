// Products with weights whose numbers are decoded on the way: into a strip's rows, 256 at a time, which the strip's
// packing turns as it does those of any matrix (packed_gemm.h). A few megabytes of strips are packed and multiplied
// before the next ones, so that no weight is ever whole in a wider dtype and no packed copy is kept. Few rows of
// activations are dot products with four rows of the weight at a time, decoded into L1: bound by reading the codes
// while arithmetic keeps up.
//
// A decoder D says what a weight's numbers are: decode(row, k0, count, to) writes `count` of them, of that row from k0
// on, a multiple of 256; `to` has room for 256. prefetch(row, k0, count) asks for their bytes.
// Included only by *.cpu.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/ops/matmul/few_rows.h"

namespace sf {
namespace SF_ISA {

constexpr int kDecoded = 256;  // numbers of a row that are decoded at once: a K format's block, or eight of the others

// What multiply_packed() multiplies: b's columns are rows of the weight. Depths begin at multiples of kDecoded.
template <class S, class D> struct DecodedOperands {
  using Src = S;
  int64_t m, n, k;
  const Src* a;
  int64_t a_m;
  D weight;
  int64_t first;  // column 0 is this row of the weight
  Epilogue e;

  SF_INLINE void pack_a(float* dst, int64_t row, int rows, int64_t k0, int64_t values) const {
    pack<MulF32>(dst, rows, a + row * a_m + k0, a_m, 1, rows, values);
  }
  SF_INLINE void pack_b(float* dst, int64_t col, int cols, int64_t k0, int64_t values) const {
    constexpr int NR = kTileCols<MulF32>;
    alignas(64) float numbers[NR * kDecoded];
    const float* rows[NR];
    for (int i = 0; i < NR; ++i) rows[i] = numbers + i * kDecoded;
    for (int64_t at = 0; at < values; at += kDecoded) {
      const int64_t count = min64(kDecoded, values - at);
      for (int i = 0; i < cols; ++i) weight.decode(first + col + i, k0 + at, count, numbers + i * kDecoded);
      pack_rows<MulF32>(dst + at * NR, NR, rows, cols, count);
    }
  }
};

// Depths of whole blocks, near those of other products.
SF_INLINE static PackedShape<MulF32> shape_of_blocks(int64_t k, int64_t n) {
  PackedShape<MulF32> s(k, n);
  if (s.blocks > 1) {
    s.block_units = 3 * kDecoded;
    s.blocks = ceil_div(s.units, s.block_units);
  }
  return s;
}

// Floats of decoded strips at a time: two megabytes stay in a cache while rows pass by them, and a second packing of
// those rows costs as little as a hundredth of a product with 128 columns.
constexpr int64_t kDecodedBytes = 4 << 20;

template <class P> static void multiply_many_rows(const P& p) {
  const int64_t per_strip = p.k * kTileCols<MulF32> * int64_t(sizeof(float));
  const int64_t chunk = max64(8, kDecodedBytes / max64(1, per_strip)) * kTileCols<MulF32>;
  for (int64_t c0 = 0; c0 < p.n; c0 += chunk) {
    P part = p;
    part.n = min64(chunk, p.n - c0);
    part.first += c0;
    part.e = columns(p.e, c0);
    const PackedShape<MulF32> s = shape_of_blocks(p.k, part.n);
    auto* packed = static_cast<float*>(scratch(s.bytes(), kSlotB));
    pack_whole_b<MulF32>(part, s, packed);
    multiply_prepacked<MulF32>(part, s, packed);
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

// Columns c0 .. c1 of the product; a is p.m rows of floats, a_row apart, with zeros past p.k up to whole vectors.
template <class P> static void multiply_few_rows(const P& p, const float* a, int64_t a_row, int64_t c0, int64_t c1) {
  alignas(64) float numbers[kDotCols * kDecoded], sums[kFewRows * kDotCols * kLanes], results[kFewRows * kDotCols];
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
    for (int64_t i = 0; i < p.m * kDotCols; ++i) results[i] = reduce_add(load(sums + i * kLanes));
    alignas(64) float tile[kTileCols<MulF32>] = {};  // vectors of it are read whole
    for (int64_t i = 0; i < p.m; ++i) {
      for (int j = 0; j < kDotCols; ++j) tile[j] = results[i * kDotCols + j];
      finish_tile(p.e, i, 1, c, cols, tile, kTileCols<MulF32>);
    }
  }
}

template <class S, class D>
static void multiply_decoded(const TensorView& a, const TensorView& bias, const TensorView& residual,
                             const TensorView& c, Activation act, const D& weight) {
  Epilogue e{};
  e.c = c.data, e.c_row = c.strides[0], e.c_type = c.dtype, e.act = act, e.alpha = 1, e.beta = 0;
  if (bias) e.bias = bias.data, e.bias_type = bias.dtype;
  if (residual) e.residual = residual.data, e.residual_row = residual.strides[0], e.residual_type = residual.dtype;
  const DecodedOperands<S, D> p{c.sizes[0], c.sizes[1], a.sizes[1], a.as<const S>(), a.strides[0], weight, 0, e};
  if (p.m > kFewRows) return multiply_many_rows(p);
  const int64_t a_row = ceil_div(p.k, kLanes) * kLanes;
  auto* floats = static_cast<float*>(scratch(size_t(p.m * a_row) * sizeof(float) + kPackSlack, kSlotA));
  for (int64_t i = 0; i < p.m; ++i) {
    int64_t k = 0;
    for (; k + kLanes <= p.k; k += kLanes) store(floats + i * a_row + k, load(p.a + i * p.a_m + k));
    if (k < p.k) store(floats + i * a_row + k, load_n(p.a + i * p.a_m + k, int(p.k - k)));
  }
  const int64_t groups = ceil_div(p.n, kDotCols), work = kDotCols * p.k * max64(2, p.m);
  parallel_for(groups, ceil_div(kDotWork, max64(1, work)), [&](int64_t begin, int64_t end) {
    multiply_few_rows(p, floats, a_row, begin * kDotCols, min64(p.n, end * kDotCols));
  });
}

}  // namespace SF_ISA
}  // namespace sf
