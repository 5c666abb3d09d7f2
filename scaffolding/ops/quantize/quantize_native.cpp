// Quantisation on the CPU, once for each weight: plain loops.
#include <algorithm>
#include <cmath>

#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/quantize/codes.h"
#include "scaffolding/ops/quantize/kernel.h"

namespace sf {
namespace {

void quantize(const BlockQuantize& q) {
  const float* x = q.x.as<const float>();
  auto* codes = q.codes.as<uint8_t>();
  float* absmax = q.absmax.as<float>();
  const int64_t n = q.x.numel(), block = q.block;
  parallel_for((n + block - 1) / block, 64, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t from = b * block, to = std::min(n, from + block);
      float most = 0;
      for (int64_t i = from; i < to; ++i) most = std::max(most, std::fabs(x[i]));
      absmax[b] = most;
      const float inverse = 1.f / std::max(most, 1e-38f);
      auto scaled = [&](int64_t i) { return i < to ? std::min(1.f, std::max(-1.f, x[i] * inverse)) : 0.f; };
      if (q.format == BlockFormat::Dynamic)
        for (int64_t i = from; i < to; ++i) codes[i] = uint8_t(nearest_code(kDynamic.v, scaled(i)));
      else if (q.format == BlockFormat::Fp4)
        for (int64_t i = from; i < to; i += 2)
          codes[i / 2] = uint8_t(kFp4Sorted.v[nearest_code(kFp4Ascending.v, scaled(i))] << 4 |
                                 kFp4Sorted.v[nearest_code(kFp4Ascending.v, scaled(i + 1))]);
      else
        for (int64_t i = from; i < to; i += 2)
          codes[i / 2] = uint8_t(nearest_code(kNf4.v, scaled(i)) << 4 | nearest_code(kNf4.v, scaled(i + 1)));
    }
  });
}
SF_KERNEL(block_quantize, DeviceType::CPU, "native", 0, quantize, nullptr)

}  // namespace
}  // namespace sf
