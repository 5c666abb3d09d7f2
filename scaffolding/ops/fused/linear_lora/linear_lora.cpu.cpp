// The side path lengthens the sums by its rank: neither it nor the layer's own product is stored before they are added.
// Beside a first product of the side path that is stored and added to, 4096 rows of 320 to 2560 cost 5 % over the bare
// layer instead of 30 % in float32, and of 16-bit floats no sum is rounded twice.
#include "scaffolding/backend/cpu/bf16_dot.h"
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

  SF_INLINE void pack_a(typename K::Unit* dst, int64_t row, int rows, int64_t k0, int64_t values) const {
    auto part = [&](const Src* from, int64_t stride) {
      return [=](typename K::Unit* to, int64_t at, int64_t count) {
        pack<K>(to, rows, from + row * stride + at, stride, 1, rows, count);
      };
    };
    pack_two_parts<K>(dst, rows, k0, values, split, part(a, a_m), part(h, h_m));
  }
  SF_INLINE void pack_b(typename K::Unit* dst, int64_t col, int cols, int64_t k0, int64_t values) const {
    auto part = [&](const Src* from, int64_t stride) {
      return [=](typename K::Unit* to, int64_t at, int64_t count) {
        pack<K>(to, kTileCols<K>, from + col * stride + at, stride, 1, cols, count);
      };
    };
    pack_two_parts<K>(dst, kTileCols<K>, k0, values, split, part(b, b_n), part(up, up_n));
  }
};

template <class K, class Src> static void run(const LinearLora& g) {
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
                                  e};
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

static void run_lora(const LinearLora& g) {
  if (g.a.dtype == kFloat32) return run<MulF32, float>(g);
  if (g.a.dtype == kFloat16) return run<MulF32, Half>(g);
#if defined(__AVX512BF16__)
  if (cpu::bf16_dot_pays()) return run<MulBF16, BFloat16>(g);
#endif
  run<MulF32, BFloat16>(g);
}

// Of fewer rows, packing the weight anew costs more than storing sums does: in float32 it can be read where it lies
// (row_gemm.h), of 16-bit floats a packed copy is kept (gemm.cpu.cpp).
constexpr int64_t kFewestRows = 256, kFewestRowsOf16Bits = 513;

static bool supports(const LinearLora& g) {
  const DType t = g.a.dtype;
  if ((t != kFloat32 && !is_reduced(t)) || g.b.dtype != t || g.h.dtype != t || g.up.dtype != t || g.y.dtype != t)
    return false;
  for (auto* x : {&g.a, &g.b, &g.h, &g.up, &g.y})
    if (x->strides[1] != 1) return false;
  return g.y.sizes[0] >= (t == kFloat32 ? kFewestRows : kFewestRowsOf16Bits) && g.a.sizes[1] % 2 == 0 &&
         !(t == kBFloat16 && cpu::bf16_library_pays() && !cpu::bf16_dot_pays());
}

}  // namespace SF_ISA

SF_KERNEL(linear_lora_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_lora, SF_ISA::supports)

}  // namespace sf
