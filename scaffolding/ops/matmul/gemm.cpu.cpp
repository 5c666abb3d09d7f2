// Matrix products by our own kernels: every dtype, every stride, every instruction set.
// The kernels themselves are in packed_gemm.h, row_gemm.h and few_rows.h; here: which arithmetic serves which dtype,
// and integers.
#include "scaffolding/backend/cpu/bf16_dot.h"
#include "scaffolding/ops/matmul/gemm_calls.h"

namespace sf {
namespace SF_ISA {

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
