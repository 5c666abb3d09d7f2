// float8 to wider numbers on the CPU.
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/quantize/fp8_widen.h"
#include "scaffolding/ops/quantize/kernel.h"

namespace sf {
namespace SF_ISA {

template <class Q, class T> static void dequantize_rows(const Fp8Dequantize& d) {
  const int64_t rows = d.y.sizes[0], columns = d.y.sizes[1];
  const bool by_row = d.scale.numel() > 1;
  parallel_for(rows, columns > 0 ? (16384 + columns - 1) / columns : 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const vf scale(d.scale.as<const float>()[by_row ? r : 0]);
      const uint8_t* from = d.q.as<const uint8_t>() + r * columns;
      T* to = d.y.as<T>() + r * columns;
      int64_t c = 0;
      for (; c + kLanes <= columns; c += kLanes) store(to + c, widen<Q>(from + c) * scale);
      if (c == columns) continue;
      uint8_t last[kLanes] = {};
      std::memcpy(last, from + c, size_t(columns - c));
      store_n(to + c, widen<Q>(last) * scale, int(columns - c));
    }
  });
}

template <class Q> static void dequantize_to(const Fp8Dequantize& d) {
  switch (d.y.dtype) {
    case kFloat16: return dequantize_rows<Q, Half>(d);
    case kBFloat16: return dequantize_rows<Q, BFloat16>(d);
    default: return dequantize_rows<Q, float>(d);
  }
}
static void dequantize(const Fp8Dequantize& d) {
  if (d.q.dtype == kFloat8E4M3) dequantize_to<Float8E4M3>(d);
  else dequantize_to<Float8E5M2>(d);
}

SF_KERNEL(fp8_dequantize, DeviceType::CPU, "native", SF_ISA_PRIORITY, dequantize, nullptr)

}  // namespace SF_ISA
}  // namespace sf
