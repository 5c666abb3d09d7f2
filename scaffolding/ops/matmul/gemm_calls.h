// A call of gemm as matrix products of one arithmetic: batches, tall products, weights whose packed copy is kept.
// Included only by *.cpu.cpp and *.amx.cpp files; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/ops/matmul/few_rows.h"

namespace sf {
namespace SF_ISA {

SF_INLINE Epilogue epilogue_of(const Gemm& g, int64_t batch) {
  Epilogue e{};
  e.c = advance(g.c.data, g.c.dtype, batch * g.c.strides[0]);
  e.c_row = g.c.strides[1];
  e.c_type = g.c.dtype;
  e.act = g.act;
  e.alpha = g.alpha;
  e.beta = g.beta;
  if (g.bias) e.bias = g.bias.data, e.bias_type = g.bias.dtype;
  if (g.pre)
    e.pre = advance(g.pre.data, g.pre.dtype, batch * g.pre.strides[0]), e.pre_row = g.pre.strides[1],
    e.pre_type = g.pre.dtype;
  return e;
}

template <class K, class Src> static Product<K, Src> product_of(const Gemm& g, int64_t batch, bool* rest) {
  return {g.c.sizes[1],
          g.c.sizes[2],
          g.a.sizes[2],
          g.a.as<const Src>() + batch * g.a.strides[0],
          g.a.strides[1],
          g.a.strides[2],
          g.b.as<const Src>() + batch * g.b.strides[0],
          g.b.strides[1],
          g.b.strides[2],
          epilogue_of(g, batch),
          rest};
}

// One b for the whole batch, and rows of a, c and pre that follow on from one matrix to the next: one tall product.
static bool batch_is_rows(const Gemm& g) {
  const int64_t m = g.c.sizes[1];
  return g.b.strides[0] == 0 && g.a.strides[0] == m * g.a.strides[1] && g.c.strides[0] == m * g.c.strides[1] &&
         (!g.pre || g.pre.strides[0] == m * g.pre.strides[1]);
}

// A weight's packed copy is kept where packing is a large part of the work; above that the copy only costs memory.
// Below, dot products with the weight as it lies run at the speed of memory; and where a float32 weight lies
// (row_gemm.h), none is needed.
constexpr int64_t kKeepFrom = 5, kKeepRows = 512;

template <class K, class P> static void multiply_weight(const Gemm& g, const P& p) {
  if (g.b_version && p.m >= kKeepFrom && p.m <= kKeepRows && !prefers_strided<K>(p) &&
      (p.m <= kDotMost<typename P::Src> || which_lies<K>(p) != Lies::B)) {
    const PackedShape<K> s(p.k, p.n);
    // float32 is packed in as many parts as its precision has, and whole where one call fell back.
    const cpu::PackedKey key{
        p.b, g.b_version, 1 + SF_ISA_PRIORITY, {int64_t(g.b.dtype), p.k, p.n, p.b_k, p.b_n}, sizeof(typename K::Unit)};
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
  multiply<K>(p);
}

// Products of so few multiply-adds that calling for one, and packing, would take longer.
constexpr int64_t kTinyWork = 2048;
template <class Src> static bool is_tiny(const Gemm& g) {
  const int64_t work = g.c.sizes[1] * g.c.sizes[2] * g.a.sizes[2];
  return work > 0 && work <= kTinyWork && g.b.strides[2] == 1 && g.c.strides[2] == 1 && g.c.dtype == g.a.dtype &&
         g.alpha == 1 && g.beta == 0 && !g.bias && !g.pre && g.act == Activation::None;
}

// Matrices begin .. end of the batch: of four rows of c, or fewer, the columns of a vector at a time.
template <int kRows, class Src>
static void tiny_rows(const Src* a, int64_t a_row, int64_t a_k, const Src* b, int64_t b_k, Src* c, int64_t c_row,
                      int64_t depth, int cols) {
  vf sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = vf(0.0f);
  for (int64_t k = 0; k < depth; ++k) {
    const vf row = load_n(b + k * b_k, cols);
    for (int r = 0; r < kRows; ++r) sums[r] = fma(vf(to_float(a[r * a_row + k * a_k])), row, sums[r]);
  }
  for (int r = 0; r < kRows; ++r) store_n(c + r * c_row, sums[r], cols);
}
template <class Src> static void multiply_tiny(const Gemm& g, int64_t begin, int64_t end) {
  const int64_t m = g.c.sizes[1], n = g.c.sizes[2], depth = g.a.sizes[2];
  const auto rows_of = [&](int64_t count) {
    return count >= 4   ? &tiny_rows<4, Src>
           : count == 3 ? &tiny_rows<3, Src>
           : count == 2 ? &tiny_rows<2, Src>
                        : &tiny_rows<1, Src>;
  };
  if (n == 1) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t r = 0; r < m; ++r) {
        const Src* a = g.a.as<const Src>() + i * g.a.strides[0] + r * g.a.strides[1];
        const Src* b = g.b.as<const Src>() + i * g.b.strides[0];
        float sum = 0;
        for (int64_t k = 0; k < depth; ++k)
          sum = fma(float(to_float(a[k * g.a.strides[2]])), float(to_float(b[k * g.b.strides[1]])), sum);
        g.c.as<Src>()[i * g.c.strides[0] + r * g.c.strides[1]] = from_float<Src>(sum);
      }
    return;
  }
  for (int64_t i = begin; i < end; ++i)
    for (int64_t r = 0; r < m; r += 4)
      for (int64_t j = 0; j < n; j += kLanes)
        rows_of(m - r)(g.a.as<const Src>() + i * g.a.strides[0] + r * g.a.strides[1], g.a.strides[1], g.a.strides[2],
                       g.b.as<const Src>() + i * g.b.strides[0] + j, g.b.strides[1],
                       g.c.as<Src>() + i * g.c.strides[0] + r * g.c.strides[1] + j, g.c.strides[1], depth,
                       int(min64(kLanes, n - j)));
}

// rest: of arithmetic that watches its packing, what it saw.
template <class K, class Src> static void run(const Gemm& g, bool* rest = nullptr) {
  const int64_t batch = g.c.sizes[0];
  if (batch == 0 || g.c.sizes[1] == 0 || g.c.sizes[2] == 0) return;
  Product<K, Src> p = product_of<K, Src>(g, 0, rest);
  if (batch > 1 && batch_is_rows(g)) {
    p.m *= batch;
    return multiply_weight<K>(g, p);
  }
  if (batch == 1) return multiply_weight<K>(g, p);
  const int64_t work = p.m * p.n * p.k;
  if (batch < 4 * num_threads() && work >= 16 * kParallelWork * num_threads()) {
    for (int64_t i = 0; i < batch; ++i) multiply<K>(product_of<K, Src>(g, i, rest));
    return;
  }
  if constexpr (std::is_same_v<K, MulF32>)
    if (is_tiny<Src>(g))
      return parallel_for(batch, kParallelWork / 4 / work + 1,
                          [&](int64_t begin, int64_t end) { multiply_tiny<Src>(g, begin, end); });
  // Many small products: each thread multiplies whole matrices. parallel_for inside a piece runs on its own thread.
  parallel_for(batch, ceil_div(kParallelWork, max64(1, work)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) multiply<K>(product_of<K, Src>(g, i, rest));
  });
}

}  // namespace SF_ISA
}  // namespace sf
