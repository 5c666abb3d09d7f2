// Vectors whose numbers all fit in 32 bits, as most do, are converted whole; others one by one.
#include "scaffolding/ops/copy/whole_numbers.h"

#include <cstring>

#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/backend/cpu/simd_math.h"

namespace sf {
namespace SF_ISA {
namespace {

template <class D, class S> void convert(const WholeNumbers& c) {
  typedef D Numbers __attribute__((vector_size(kLanes * sizeof(D))));
  auto* d = static_cast<D*>(c.to);
  auto* s = static_cast<const S*>(c.from);
  int64_t i = 0;
  for (; i + kLanes <= c.n; i += kLanes) {
    const vf v = load(s + i);
    if (any(!(abs(v) < vf(0x1p31f)))) {
      for (int j = 0; j < kLanes; ++j) d[i + j] = whole_number<D>(v[j]);
      continue;
    }
    const Numbers n = __builtin_convertvector(__builtin_convertvector(v.v, vi_raw), Numbers);
    std::memcpy(d + i, &n, sizeof n);
  }
  for (; i < c.n; ++i) d[i] = whole_number<D>(to_float(s[i]));
}

template <class D> void from_any(const WholeNumbers& c) {
  switch (c.from_type) {
    case kFloat32: return convert<D, float>(c);
    case kBFloat16: return convert<D, BFloat16>(c);
    default: return convert<D, Half>(c);
  }
}
void convert_row(const WholeNumbers& c) {
  switch (c.to_type) {
    case kUInt8: return from_any<uint8_t>(c);
    case kInt8: return from_any<int8_t>(c);
    case kInt16: return from_any<int16_t>(c);
    case kInt32: return from_any<int32_t>(c);
    default: return from_any<int64_t>(c);
  }
}
SF_KERNEL(whole_numbers, DeviceType::CPU, "native", SF_ISA_PRIORITY, convert_row, nullptr)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
