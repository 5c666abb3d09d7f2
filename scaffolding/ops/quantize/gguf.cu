// Weights in GGUF's blocks on CUDA.
#include "scaffolding/ops/quantize/gguf_kernel.h"
#include "scaffolding/ops/quantize/stored_product.cuh"

namespace sf::cuda {
namespace {

// Calls f with the decoder of a format.
template <class F> void visit(GgufBlocks format, const uint8_t* data, const F& f) {
  switch (format) {
#define SF_GGUF_PLAIN(NAME, id, bytes, dtype)
#define SF_GGUF_UNREAD(NAME, id, block, bytes)
#define SF_GGUF_BLOCKS(NAME, id, block, bytes) \
  case GgufBlocks::NAME:                       \
    return f(GgufNumbers<GgufBlocks::NAME, block, bytes>{data});
#include "scaffolding/ops/quantize/gguf_formats.def"
  }
}

void decode(const GgufDecode& d) {
  const int64_t bytes = d.blocks.numel(), n = d.y.numel();
  const AlignedBytes aligned(d.y.device, d.blocks.data, bytes);
  visit(d.format, aligned.data(), [&](const auto& numbers) {
    decode_numbers("dequantize_gguf", d.y.device, Weight{numbers, bytes, n}, 0, n, d.y.dtype, d.y.data);
  });
}
bool decodes(const GgufDecode& d) { return reinterpret_cast<uintptr_t>(d.y.data) % 16 == 0; }

void multiply(const GgufProduct& g) {
  const int64_t bytes = g.blocks.numel();
  const AlignedBytes aligned(g.c.device, g.blocks.data, bytes);
  visit(g.format, aligned.data(), [&](const auto& numbers) {
    multiply_stored("linear_gguf", without_weight(g), Weight{numbers, bytes, g.a.sizes[1]});
  });
}

SF_KERNEL(gguf_decode, DeviceType::CUDA, "native", 0, decode, decodes)
SF_KERNEL(gguf_product, DeviceType::CUDA, "native", 0, multiply, nullptr)

}  // namespace
}  // namespace sf::cuda
