// Numbers and products of weights in GGUF's blocks (decoded_product.h).
#include "scaffolding/ops/quantize/decoded_product.h"
#include "scaffolding/ops/quantize/gguf_decode.h"
#include "scaffolding/ops/quantize/gguf_kernel.h"

namespace sf {
namespace SF_ISA {

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

// Rows of whole blocks.
struct GgufRows {
  const uint8_t* blocks;
  int64_t row_bytes;
  GgufDecoder f;
  SF_INLINE const uint8_t* at(int64_t row, int64_t k0) const {
    return blocks + row * row_bytes + k0 / f.block * f.bytes;
  }
  SF_INLINE void decode(int64_t row, int64_t k0, int64_t count, float* to) const {
    f.decode(at(row, k0), count / f.block, to);
  }
  SF_INLINE void prefetch(int64_t row, int64_t k0, int64_t count) const {
    for (int64_t b = 0; b < count / f.block * f.bytes; b += 64) __builtin_prefetch(at(row, k0) + b, 0, 2);
  }
};

static void run_gguf_product(const GgufProduct& g) {
  const GgufRows rows{g.blocks.as<const uint8_t>(), g.blocks.sizes[1], gguf_decoder(g.format)};
  switch (g.a.dtype) {
    case kFloat16: return multiply_decoded<Half>(g.a, g.bias, g.residual, g.c, g.act, rows);
    case kBFloat16: return multiply_decoded<BFloat16>(g.a, g.bias, g.residual, g.c, g.act, rows);
    default: return multiply_decoded<float>(g.a, g.bias, g.residual, g.c, g.act, rows);
  }
}

}  // namespace SF_ISA

SF_KERNEL(gguf_decode, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gguf_decode, nullptr)
SF_KERNEL(gguf_product, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gguf_product, nullptr)

}  // namespace sf
