#include "scaffolding/ops/random/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

void uniform_range(const UniformRange& u) {
  const float span = u.high - u.low;
  for (int64_t i = 0; i < u.n; ++i) {
    const float v = __builtin_fmaf(u.data[i], span, u.low);
    u.data[i] = v == u.high ? u.low : v;
  }
}

SF_KERNEL(uniform_range_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY, uniform_range, nullptr)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
