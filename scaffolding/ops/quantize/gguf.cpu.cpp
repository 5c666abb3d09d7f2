// Products with weights in GGUF's blocks. Blocks are decoded into a strip's rows, 256 numbers at a time, which the
// strip's packing turns as it does those of any matrix (packed_gemm.h). A few megabytes of strips are packed and
// multiplied before the next ones, so that no weight is ever whole in a wider dtype and no packed copy is kept. Few
// rows of activations are dot products with four rows of the weight at a time, decoded into L1: bound by reading the
// blocks while arithmetic keeps up.
#include "scaffolding/ops/matmul/few_rows.h"
#include "scaffolding/ops/quantize/gguf_decode.h"
#include "scaffolding/ops/quantize/gguf_kernel.h"

namespace sf {
namespace SF_ISA {

constexpr int kDecoded = 256;  // numbers of a row that are decoded at once: a K format's block, or eight of the others

template <class T> static void decode_all(const GgufDecode& d) {
  const GgufDecoder f = gguf_decoder(d.format);
  const uint8_t* from = d.blocks.as<const uint8_t>();
  T* y = d.y.as<T>();
  const int64_t each = kDecoded / f.block;
  const int64_t blocks = d.y.numel() / f.block;
  parallel_for(ceil_div(blocks, each), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = min64(each, blocks - i * each);
      const uint8_t* p = from + i * each * f.bytes;
      if constexpr (sizeof(T) == 4) {
        f.decode(p, n, y + i * kDecoded);
      } else {
        alignas(64) float numbers[kDecoded];
        f.decode(p, n, numbers);
        for (int64_t j = 0; j < n * f.block; j += kLanes) store(y + i * kDecoded + j, load(numbers + j));
      }
    }
  });
}

static void run_gguf_decode(const GgufDecode& d) {
  switch (d.y.dtype) {
    case kFloat16: return decode_all<Half>(d);
    case kBFloat16: return decode_all<BFloat16>(d);
    default: return decode_all<float>(d);
  }
}

// What multiply_packed() multiplies: b's columns are rows of blocks. Depths begin at whole blocks.
template <class S> struct GgufOperands {
  using Src = S;
  int64_t m, n, k;
  const Src* a;
  int64_t a_m;
  const uint8_t* b;
  int64_t row_bytes;
  GgufDecoder f;
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
      const int64_t count = min64(kDecoded, values - at), first = (k0 + at) / f.block * f.bytes;
      for (int i = 0; i < cols; ++i)
        f.decode(b + (col + i) * row_bytes + first, count / f.block, numbers + i * kDecoded);
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
    part.b += c0 * p.row_bytes;
    part.e = columns(p.e, c0);
    if (part.e.residual) part.e.residual = advance(part.e.residual, part.e.residual_type, c0);
    const PackedShape<MulF32> s = shape_of_blocks(p.k, part.n);
    auto* packed = static_cast<float*>(scratch(s.bytes(), kSlotB));
    pack_whole_b<MulF32>(part, s, packed);
    multiply_prepacked<MulF32>(part, s, packed);
  }
}

// Rows up to which decoding for dot products costs less than packing does.
constexpr int64_t kFewRows = 16;

// sums[i][j] += dot products of MR rows of a with four of the weight, `count` numbers of each, a multiple of 32.
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

// Columns c0 .. c1 of the product; a is p.m rows of floats, p.k apart.
template <class P> static void multiply_few_rows(const P& p, const float* a, int64_t c0, int64_t c1) {
  alignas(64) float numbers[kDotCols * kDecoded], sums[kFewRows * kDotCols * kLanes], results[kFewRows * kDotCols];
  for (int64_t c = c0; c < c1; c += kDotCols) {
    const int cols = int(min64(kDotCols, c1 - c));
    for (int64_t i = 0; i < p.m * kDotCols * kLanes; ++i) sums[i] = 0;
    for (int64_t k = 0; k < p.k; k += kDecoded) {
      const int64_t count = min64(kDecoded, p.k - k);
      for (int j = 0; j < kDotCols; ++j) {  // past the last column the last one again: its sums are not used
        const uint8_t* from = p.b + (c + min64(j, cols - 1)) * p.row_bytes + k / p.f.block * p.f.bytes;
        // A row is about a page, too short for the processor's prefetcher: the same part of the next four rows.
        for (int64_t b = 0; b < count / p.f.block * p.f.bytes; b += 64)
          __builtin_prefetch(from + kDotCols * p.row_bytes + b, 0, 2);
        p.f.decode(from, count / p.f.block, numbers + j * kDecoded);
      }
      int64_t i = 0;
      for (; i + kDotRows <= p.m; i += kDotRows)
        add_dots<kDotRows>(a + i * p.k + k, p.k, numbers, count, sums + i * kDotCols * kLanes);
      for (; i < p.m; ++i) add_dots<1>(a + i * p.k + k, p.k, numbers, count, sums + i * kDotCols * kLanes);
    }
    for (int64_t i = 0; i < p.m * kDotCols; ++i) results[i] = reduce_add(load(sums + i * kLanes));
    alignas(64) float tile[kTileCols<MulF32>] = {};  // vectors of it are read whole
    for (int64_t i = 0; i < p.m; ++i) {
      for (int j = 0; j < kDotCols; ++j) tile[j] = results[i * kDotCols + j];
      finish_tile(p.e, i, 1, c, cols, tile, kTileCols<MulF32>);
    }
  }
}

template <class S> static void gguf_multiply(const GgufProduct& g) {
  Epilogue e{};
  e.c = g.c.data, e.c_row = g.c.strides[0], e.c_type = g.c.dtype, e.act = g.act, e.alpha = 1, e.beta = 0;
  if (g.bias) e.bias = g.bias.data, e.bias_type = g.bias.dtype;
  if (g.residual)
    e.residual = g.residual.data, e.residual_row = g.residual.strides[0], e.residual_type = g.residual.dtype;
  const GgufOperands<S> p{g.c.sizes[0],      g.c.sizes[1],           g.a.sizes[1],
                          g.a.as<const S>(), g.a.strides[0],         g.blocks.as<const uint8_t>(),
                          g.blocks.sizes[1], gguf_decoder(g.format), e};
  if (p.m > kFewRows) return multiply_many_rows(p);
  auto* a = static_cast<float*>(scratch(size_t(p.m * p.k) * sizeof(float) + kPackSlack, kSlotA));
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t k = 0; k < p.k; k += kLanes) store(a + i * p.k + k, load(p.a + i * p.a_m + k));
  const int64_t groups = ceil_div(p.n, kDotCols), work = kDotCols * p.k * max64(2, p.m);
  parallel_for(groups, ceil_div(kDotWork, max64(1, work)), [&](int64_t begin, int64_t end) {
    multiply_few_rows(p, a, begin * kDotCols, min64(p.n, end * kDotCols));
  });
}

static void run_gguf_product(const GgufProduct& g) {
  switch (g.a.dtype) {
    case kFloat16: return gguf_multiply<Half>(g);
    case kBFloat16: return gguf_multiply<BFloat16>(g);
    default: return gguf_multiply<float>(g);
  }
}

}  // namespace SF_ISA

SF_KERNEL(gguf_decode, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gguf_decode, nullptr)
SF_KERNEL(gguf_product, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gguf_product, nullptr)

}  // namespace sf
