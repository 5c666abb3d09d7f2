#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/fused/modulate/kernel.h"

namespace sf::cuda {
namespace {

template <class T> struct Rows {
  const T *x, *factor, *base;
  T* y;
  int64_t cols, count, rows_per_batch, factor_stride, base_stride;
  real_t<T> one;
  bool base_per_batch;
};

template <class T> __global__ void __launch_bounds__(kThreads) scale_elements(Rows<T> s) {
  using A = real_t<T>;
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.count) return;
  int64_t r = i / s.cols, c = i - r * s.cols, b = r / s.rows_per_batch;
  A base = widen(s.base[(s.base_per_batch ? b : r) * s.base_stride + c]), factor = widen(s.factor[b * s.factor_stride + c]);
  s.y[i] = to_storage<T>(base + A(widen(s.x[i])) * (s.one + factor));
}

int64_t row_stride(const TensorView& t) { return t.ndim == 2 && t.sizes[0] > 1 ? t.strides[0] : 0; }

void scale(const ScaleRows& s) {
  int64_t count = s.x.numel(), cols = s.x.sizes[s.x.ndim - 1];
  if (count == 0) return;
  as_float(s.x.dtype, [&](auto t) {
    using T = decltype(t);
    Rows<T> r{s.x.as<T>(),
              s.factor.as<T>(),
              s.base.as<T>(),
              s.y.as<T>(),
              cols,
              count,
              s.rows_per_batch,
              row_stride(s.factor),
              s.base_per_batch ? row_stride(s.base) : cols,
              real_t<T>(s.one),
              s.base_per_batch};
    launch("scale_rows", s.x.device, blocks_for(count, 1), scale_elements<T>, r);
  });
}
SF_KERNEL(scale_rows, DeviceType::CUDA, "native", 0, scale, nullptr)

}  // namespace
}  // namespace sf::cuda
