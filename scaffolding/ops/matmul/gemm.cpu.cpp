// Matrix products by our own kernels: every dtype, every stride, every instruction set.
// The kernels themselves are in packed_gemm.h, row_gemm.h and few_rows.h; here: which arithmetic serves which dtype,
// batches, and integers.
#include "scaffolding/backend/cpu/bf16_dot.h"
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

template <class K, class Src> static Product<K, Src> product_of(const Gemm& g, int64_t batch) {
  return {g.c.sizes[1],
          g.c.sizes[2],
          g.a.sizes[2],
          g.a.as<const Src>() + batch * g.a.strides[0],
          g.a.strides[1],
          g.a.strides[2],
          g.b.as<const Src>() + batch * g.b.strides[0],
          g.b.strides[1],
          g.b.strides[2],
          epilogue_of(g, batch)};
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
    const cpu::PackedKey key{p.b, g.b_version, 1 + SF_ISA_PRIORITY, {int64_t(g.b.dtype), p.k, p.n, p.b_k, p.b_n}};
    auto fill = [&](void* to) { pack_whole_b<K>(p, s, static_cast<typename K::Unit*>(to)); };
    cpu::PackedWeight kept(key, s.bytes(), fill);
    if (kept.get()) return multiply_prepacked<K>(p, s, static_cast<const typename K::Unit*>(kept.get()));
  }
  multiply<K>(p);
}

template <class K, class Src> static void run(const Gemm& g) {
  const int64_t batch = g.c.sizes[0];
  if (batch == 0 || g.c.sizes[1] == 0 || g.c.sizes[2] == 0) return;
  Product<K, Src> p = product_of<K, Src>(g, 0);
  if (batch > 1 && batch_is_rows(g)) {
    p.m *= batch;
    return multiply_weight<K>(g, p);
  }
  if (batch == 1) return multiply_weight<K>(g, p);
  const int64_t work = p.m * p.n * p.k;
  if (batch < 4 * num_threads() && work >= 16 * kParallelWork * num_threads()) {
    for (int64_t i = 0; i < batch; ++i) multiply<K>(product_of<K, Src>(g, i));
    return;
  }
  // Many small products: each thread multiplies whole matrices. parallel_for inside a piece runs on its own thread.
  parallel_for(batch, ceil_div(kParallelWork, max64(1, work)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) multiply<K>(product_of<K, Src>(g, i));
  });
}

// Integers wrap around, as in torch. Unsigned arithmetic: signed overflow is undefined.
template <class T> static void run_integer(const Gemm& g) {
  typedef uint64_t U;
  const int64_t m = g.c.sizes[1], n = g.c.sizes[2], k = g.a.sizes[2];
  parallel_for(g.c.sizes[0] * m, ceil_div(kParallelWork / 4, max64(1, n * k)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t batch = r / m, i = r % m;
      const T* a = g.a.as<const T>() + batch * g.a.strides[0] + i * g.a.strides[1];
      const T* b = g.b.as<const T>() + batch * g.b.strides[0];
      T* c = g.c.as<T>() + batch * g.c.strides[0] + i * g.c.strides[1];
      for (int64_t j = 0; j < n; ++j) {
        U sum = 0;
        for (int64_t x = 0; x < k; ++x) sum += U(a[x * g.a.strides[2]]) * U(b[x * g.b.strides[1] + j * g.b.strides[2]]);
        T& out = c[j * g.c.strides[2]];
        out = T(sum * U(int64_t(g.alpha)) + (g.beta != 0 ? U(out) * U(int64_t(g.beta)) : 0));
      }
    }
  });
}

static void run_gemm(const Gemm& g) {
  switch (g.a.dtype) {
    case kFloat32: return run<MulF32, float>(g);
    case kFloat64: return run<MulF64, double>(g);
    case kFloat16: return run<MulF32, Half>(g);
    case kBFloat16:
#if defined(__AVX512BF16__)
      if (cpu::bf16_dot_pays()) return run<MulBF16, BFloat16>(g);
#endif
      return run<MulF32, BFloat16>(g);
    case kUInt8: return run_integer<uint8_t>(g);
    case kInt8: return run_integer<int8_t>(g);
    case kInt16: return run_integer<int16_t>(g);
    case kInt32: return run_integer<int32_t>(g);
    default: return run_integer<int64_t>(g);
  }
}

static bool supports(const Gemm& g) {
  const DType t = g.a.dtype;
  if (is_float8(t) || t == kBool || g.b.dtype != t) return false;
  if (g.c.strides[2] != 1 && g.c.sizes[2] > 1) return is_integral(t);
  if (is_integral(t)) return !g.bias && !g.pre && g.act == Activation::None && g.c.dtype == t;
  if (t == kFloat64) return g.c.dtype == kFloat64;
  return g.c.dtype == kFloat32 || is_reduced(g.c.dtype);
}

}  // namespace SF_ISA

SF_KERNEL(gemm, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gemm, SF_ISA::supports)

}  // namespace sf
