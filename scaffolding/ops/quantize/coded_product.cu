// Weights in codes of four and eight bits on CUDA: products that read them as they lie.
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/stored_product.cuh"

namespace sf::cuda {
namespace {

// Calls f with the decoder of a weight.
template <class F> void visit(const CodedProduct& p, const uint8_t* data, const F& f) {
  const float* scales = p.scales.as<const float>();
  const bool by_row = p.scales.numel() > 1;
  switch (p.format) {
    case CodedFormat::Nf4:
    case CodedFormat::Fp4:
      return f(NibbleNumbers{data, BlockScales(p.scales, p.nested, p.offset, p.block), p.format == CodedFormat::Fp4});
    case CodedFormat::Int8: return f(Int8Numbers{data, scales, p.unit});
    case CodedFormat::E4m3: return f(Float8Numbers<Float8E4M3>{data, scales, by_row});
    case CodedFormat::E5m2: return f(Float8Numbers<Float8E5M2>{data, scales, by_row});
  }
}

void multiply(const CodedProduct& p) {
  const int64_t bytes = p.codes.numel();
  const AlignedBytes aligned(p.c.device, p.codes.data, bytes);
  visit(p, aligned.data(), [&](const auto& numbers) {
    multiply_stored("linear", without_weight(p), Weight{numbers, bytes, p.a.sizes[1]});
  });
}
// Rows that begin anywhere in a byte or in a block of magnitudes are decoded whole (linear_of_codes).
bool multiplies(const CodedProduct& p) { return p.a.sizes[1] % 16 == 0; }

SF_KERNEL(coded_product, DeviceType::CUDA, "native", 0, multiply, multiplies)

}  // namespace
}  // namespace sf::cuda
