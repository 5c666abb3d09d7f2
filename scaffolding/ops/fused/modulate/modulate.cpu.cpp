// One read of each operand and one write: rows of C elements, a vector at a time.
#include "scaffolding/backend/cpu/simd.h"
#include "scaffolding/core/parallel.h"
#include "scaffolding/ops/fused/modulate/kernel.h"

namespace sf {
namespace SF_ISA {
namespace {

template <class T> void rows(const ScaleRows& a) {
  int64_t R = a.x.sizes[0], C = a.x.sizes[1];
  parallel_for(R, (1 << 14) / (C > 0 ? C : 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t b = r / a.rows_per_batch;
      const T* x = a.x.as<const T>() + r * C;
      const T* f = a.factor.as<const T>() + b * a.factor.strides[0];
      const T* base = a.base.as<const T>() + (a.base_per_batch ? b * a.base.strides[0] : r * C);
      T* y = a.y.as<T>() + r * C;
      if constexpr (__is_same(T, double)) {
        for (int64_t c = 0; c < C; ++c) y[c] = base[c] + x[c] * (a.one + f[c]);
      } else {
        vf one(float(a.one));
        int64_t c = 0;
        for (; c + kLanes <= C; c += kLanes) store(y + c, fma(load(x + c), one + load(f + c), load(base + c)));
        if (int n = int(C - c)) store_n(y + c, fma(load_n(x + c, n), one + load_n(f + c, n), load_n(base + c, n)), n);
      }
    }
  });
}

void scale_rows_cpu(const ScaleRows& a) {
  switch (a.x.dtype) {
    case kFloat32: return rows<float>(a);
    case kBFloat16: return rows<BFloat16>(a);
    case kFloat16: return rows<Half>(a);
    default: return rows<double>(a);
  }
}
SF_KERNEL(scale_rows, DeviceType::CPU, "native", SF_ISA_PRIORITY, scale_rows_cpu, nullptr)

}  // namespace
}  // namespace SF_ISA
}  // namespace sf
