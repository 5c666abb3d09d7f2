// Numbers and products of weights in GGUF's blocks (decoded_product.h).
#include "scaffolding/ops/quantize/gguf_rows.h"

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

static void run_gguf_product(const GgufProduct& g) { multiply_any(g, rows_of(g)); }

}  // namespace SF_ISA

SF_KERNEL(gguf_decode, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gguf_decode, nullptr)
SF_KERNEL(gguf_product, DeviceType::CPU, "native", SF_ISA_PRIORITY, SF_ISA::run_gguf_product, nullptr)

}  // namespace sf
