// Dequantisation of codes of four and eight bits on the CPU.
#include "scaffolding/ops/quantize/nibbles.h"

namespace sf {
namespace SF_ISA {

template <class T> static void nibble_blocks(const BlockDequantize& d, const float* table) {
  const BlockScales scales = block_scales(d.absmax, d.nested, d.offset);
  const uint8_t* codes = d.codes.as<const uint8_t>();
  T* y = d.y.as<T>();
  const int64_t n = d.y.numel(), block = d.block;
  parallel_for((n + block - 1) / block, 256, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const vf scale(scales(b));
      const int64_t to = n < (b + 1) * block ? n : (b + 1) * block;
      int64_t i = b * block;
      for (; i + 2 * kLanes <= to; i += 2 * kLanes) {
        vf first, second;
        look_up(table, codes + i / 2, first, second);
        store(y + i, first * scale);
        store(y + i + kLanes, second * scale);
      }
      for (; i < to; ++i) store_n(y + i, vf(nibble_at(table, codes, i)) * scale, 1);
    }
  });
}

template <class T> static void dynamic_blocks(const BlockDequantize& d) {
  const BlockScales scales = block_scales(d.absmax, d.nested, d.offset);
  const uint8_t* codes = d.codes.as<const uint8_t>();
  T* y = d.y.as<T>();
  const int64_t n = d.y.numel(), block = d.block;
  parallel_for((n + block - 1) / block, 64, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const vf scale(scales(b));
      const int64_t to = n < (b + 1) * block ? n : (b + 1) * block;
      for (int64_t i = b * block; i < to; ++i) store_n(y + i, vf(kDynamic.v[codes[i]]) * scale, 1);
    }
  });
}

template <class T> static void blocks(const BlockDequantize& d) {
  switch (d.format) {
    case BlockFormat::Nf4: return nibble_blocks<T>(d, kNf4.v);
    case BlockFormat::Fp4: return nibble_blocks<T>(d, kFp4.v);
    case BlockFormat::Dynamic: return dynamic_blocks<T>(d);
  }
}

static void dequantize(const BlockDequantize& d) {
  switch (d.y.dtype) {
    case kFloat16: return blocks<Half>(d);
    case kBFloat16: return blocks<BFloat16>(d);
    default: return blocks<float>(d);
  }
}

SF_KERNEL(block_dequantize, DeviceType::CPU, "native", SF_ISA_PRIORITY, dequantize, nullptr)

}  // namespace SF_ISA
}  // namespace sf
