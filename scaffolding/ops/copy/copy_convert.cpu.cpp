// Copies between float32, bfloat16 and float16 that lie alike, whole vectors at a time:
// what a cast of a model or of an activation is.
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/copy/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

constexpr int64_t kGrain = 1 << 15;

template <class D, class S> void convert(const Copy& c) {
  auto* d = c.dst.as<D>();
  auto* s = c.src.as<const S>();
  parallel_for(c.dst.numel(), kGrain, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) store(d + i, load(s + i));
    if (i < end) store_n(d + i, load_n(s + i, int(end - i)), int(end - i));
  });
}

void copy(const Copy& c) {
  switch (c.dst.dtype) {
    case kFloat32: return c.src.dtype == kFloat16 ? convert<float, Half>(c) : convert<float, BFloat16>(c);
    case kFloat16: return c.src.dtype == kFloat32 ? convert<Half, float>(c) : convert<Half, BFloat16>(c);
    default: return c.src.dtype == kFloat32 ? convert<BFloat16, float>(c) : convert<BFloat16, Half>(c);
  }
}

bool is_short_float(DType t) { return t == kFloat32 || t == kFloat16 || t == kBFloat16; }

// Both without gaps and in one order of dimensions: element i of the one's memory belongs to element i of the other's.
bool supports(const Copy& c) {
  if (!is_short_float(c.dst.dtype) || !is_short_float(c.src.dtype) || c.dst.dtype == c.src.dtype) return false;
  int64_t span = 1;
  for (int i = 0; i < c.dst.ndim; ++i) {
    if (c.dst.sizes[i] == 1) continue;
    if (c.dst.strides[i] != c.src.strides[i] || c.dst.strides[i] <= 0) return false;
    span += (c.dst.sizes[i] - 1) * c.dst.strides[i];
  }
  return span == c.dst.numel();
}

// Above the general copy, which every build has with priority 0.
SF_KERNEL(copy_kernel, DeviceType::CPU, "native", SF_ISA_PRIORITY + 1, copy, supports)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
