// Products with weights that are decoded on the way, on tiles: of bfloat16, to which the weight's numbers are rounded
// as where it is dequantised first, and of float32 in parts.
#include "scaffolding/ops/matmul/split_product.h"

#include "scaffolding/ops/quantize/coded_rows.h"
#include "scaffolding/ops/quantize/gguf_rows.h"

namespace sf {
namespace SF_ISA {

template <class C, class D> static void multiply_on_tiles(const C& call, const D& weight) {
  if (call.a.dtype == kBFloat16)
    return multiply_many_rows<MulTiles>(decoded_operands<MulTiles, BFloat16>(call, weight));
  in_parts([&](auto arithmetic, bool* rest) {
    using K = decltype(arithmetic);
    multiply_many_rows<K>(decoded_operands<K, float>(call, weight, rest));
  });
}
static void run_coded_product(const CodedProduct& p) {
  visit_rows(p, [&](const auto& rows) { multiply_on_tiles(p, rows); });
}
static void run_gguf_product(const GgufProduct& g) { multiply_on_tiles(g, rows_of(g)); }

// float32 where a plain product of it is in parts too (gemm.amx.cpp).
constexpr int64_t kSmallestOfParts = 1 << 16;

template <class C> static bool supports(const C& call) {
  if (call.c.sizes[0] <= kFewRows) return false;
  return call.a.dtype == kBFloat16 ||
         (call.a.dtype == kFloat32 && call.c.sizes[1] * call.a.sizes[1] >= kSmallestOfParts);
}

}  // namespace SF_ISA

SF_KERNEL(coded_product, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_coded_product,
          SF_ISA::supports<CodedProduct>)
SF_KERNEL(gguf_product, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gguf_product,
          SF_ISA::supports<GgufProduct>)

}  // namespace sf
