// Products of int8 whose sums become numbers on the way out, and convolutions as such products, by one arithmetic.
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA. They are compiled without
// contraction (cmake/sources.cmake): each step here is rounded, on every processor alike.
#pragma once
#include "scaffolding/ops/conv/conv_product.h"
#include "scaffolding/ops/int_mm/int8_operands.h"
#include "scaffolding/ops/matmul/few_rows.h"
#include "scaffolding/ops/quantize/int8_kernel.h"

namespace sf {
namespace SF_ISA {

// c[r, n] = float(sum + correction[n]) * rows[r / each] * columns[n] + bias[n] + residual[r, n]
struct ScaledEpilogue {
  void* c;
  int64_t c_row;
  DType c_type;
  const float *rows, *columns, *bias;
  int64_t each, bias_step;  // rows of a scale; from its bias to the next one's
  const void* residual;     // as c lies
  int32_t* correction;

  SF_INLINE bool plain() const { return false; }
};
SF_INLINE int32_t* corrections(const ScaledEpilogue& e) { return e.correction; }
SF_INLINE ScaledEpilogue columns(ScaledEpilogue e, int64_t c0) {
  e.c = advance(e.c, e.c_type, c0);
  e.columns += c0;
  if (e.bias) e.bias += c0;
  e.residual = advance(e.residual, e.c_type, c0);
  if (e.correction) e.correction += c0;
  return e;
}

template <class T>
SF_INLINE void finish_scaled(const ScaledEpilogue& e, T* c, int64_t row, int rows, int64_t col, int cols,
                             const int32_t* sums, int64_t sums_row) {
  typedef int32_t Ints __attribute__((vector_size(kVecBytes)));
  alignas(64) float column[kTileVecs * kLanes] = {};
  alignas(64) int32_t correction[kTileVecs * kLanes] = {};
  for (int j = 0; j < cols; ++j) column[j] = e.columns[col + j];
  if (e.correction)
    for (int j = 0; j < cols; ++j) correction[j] = e.correction[col + j];
  int64_t at = row / e.each;
  for (int i = 0; i < rows; ++i) {
    if (row + i >= (at + 1) * e.each) ++at;
    const vf by(e.rows[at]);
    for (int j = 0; j < cols; j += kLanes) {
      Ints sum, less;
      std::memcpy(&sum, sums + i * sums_row + j, sizeof sum);
      std::memcpy(&less, correction + j, sizeof less);
      vf v = vf(__builtin_convertvector(sum + less, vf_raw)) * by * load(column + j);
      const int n = cols - j < kLanes ? cols - j : kLanes;
      if (e.bias) v += load_n(e.bias + at * e.bias_step + col + j, n);
      if (e.residual) v += load_n(static_cast<const T*>(e.residual) + (row + i) * e.c_row + col + j, n);
      store_n(c + i * e.c_row + j, v, n);
    }
  }
}
[[gnu::noinline]] inline void finish_tile(const ScaledEpilogue& e, int64_t row, int rows, int64_t col, int cols,
                                          const int32_t* sums, int64_t sums_row) {
  void* c = advance(e.c, e.c_type, row * e.c_row + col);
  switch (e.c_type) {
    case kBFloat16: return finish_scaled(e, static_cast<BFloat16*>(c), row, rows, col, cols, sums, sums_row);
    case kFloat16: return finish_scaled(e, static_cast<Half*>(c), row, rows, col, cols, sums, sums_row);
    default: return finish_scaled(e, static_cast<float*>(c), row, rows, col, cols, sums, sums_row);
  }
}

template <class K, class C> SF_INLINE ScaledEpilogue scaled_epilogue(const C& call) {
  const int64_t n = call.y.sizes[1];
  return {call.y.data,
          n,
          call.y.dtype,
          call.rows.template as<const float>(),
          call.columns.template as<const float>(),
          call.bias ? call.bias.template as<const float>() : nullptr,
          call.y.sizes[0] / call.rows.sizes[0],
          call.bias && call.bias.ndim == 2 ? n : 0,
          nullptr,
          new_corrections<K>(n)};
}

template <class K> static void multiply_scaled(const Int8Linear& g) {
  Int8Operands<K, Product<K, int8_t, ScaledEpilogue>> p{};
  p.m = g.y.sizes[0], p.n = g.y.sizes[1], p.k = g.a.sizes[1];
  p.a = g.a.as<const int8_t>(), p.a_m = p.k, p.a_k = 1;
  p.b = g.weight.as<const int8_t>(), p.b_n = p.k, p.b_k = 1;
  p.e = scaled_epilogue<K>(g);
  multiply<K>(p);
}

// Bytes of the weight that are packed at a time.
constexpr int64_t kPackedWeight = 8 << 20;

template <class K> static void convolve_scaled(const Int8Conv& f) {
  ConvGeometry g{};
  g.batch = f.x.sizes[0], g.taps = 1;
  for (int i = 0; i < 3; ++i) g.in[i] = g.out[i] = g.kernel[i] = g.stride[i] = g.dilation[i] = 1;
  for (int i = 0; i < 2; ++i) {
    g.in[i + 1] = f.x.sizes[i + 1], g.out[i + 1] = f.out[i], g.kernel[i + 1] = f.weight.sizes[i + 1];
    g.stride[i + 1] = f.stride[i], g.padding[i + 1] = f.padding[i], g.dilation[i + 1] = f.dilation[i];
    g.taps *= g.kernel[i + 1];
  }
  const int64_t in = f.x.sizes[3], padded = ceil_div(in, K::kDepth) * K::kDepth;
  auto* zeros = static_cast<int8_t*>(scratch(size_t(in), kSlotConvInput));
  std::memset(zeros, 0, size_t(in));
  Int8Operands<K, ConvProduct<K, int8_t, true, ScaledEpilogue>> p{};
  p.m = f.y.sizes[0], p.n = f.y.sizes[1], p.k = g.taps * padded;
  p.e = scaled_epilogue<K>(f);
  p.e.residual = f.residual.data;
  p.from = {&g, f.x.as<const int8_t>(), in, zeros};
  p.channels = in, p.padded = padded;
  p.w = {f.weight.as<const int8_t>(), in, g.taps * in, 1};
  const int64_t strip = ceil_div(p.k, K::kDepth) * kTileCols<K> * int64_t(sizeof(typename K::Unit)),
                chunk = max64(8, kPackedWeight / strip) * kTileCols<K>;
  for (int64_t c0 = 0; c0 < p.n; c0 += chunk) {
    auto part = p;
    part.n = min64(chunk, p.n - c0);
    part.w.data += c0 * part.w.o;
    part.e = columns(p.e, c0);
    const PackedShape<K> s(p.k, part.n);
    auto* b = static_cast<typename K::Unit*>(scratch(s.bytes(), kSlotB));
    pack_whole_b<K>(part, s, b);
    multiply_prepacked<K>(part, s, b);
  }
}

}  // namespace SF_ISA
}  // namespace sf
