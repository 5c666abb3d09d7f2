#include "scaffolding/backend/cuda/elementwise.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/fused/modulate/kernel.h"

namespace sf::cuda {
namespace {

template <class T> struct Scaled {
  real_t<T> one;
  __device__ T operator()(T x, T factor, T base) const {
    using A = real_t<T>;
    return to_storage<T>(A(widen(base)) + A(widen(x)) * (one + A(widen(factor))));
  }
};

// [batches, rows of a batch, cols]; t has a row per batch, or one for all.
TensorView per_batch(TensorView t, int64_t batches, int64_t rows, int64_t cols) {
  int64_t stride = t.ndim == 2 && t.sizes[0] > 1 ? t.strides[0] : 0;
  t.ndim = 3;
  t.sizes[0] = batches, t.sizes[1] = rows, t.sizes[2] = cols;
  t.strides[0] = stride, t.strides[1] = 0, t.strides[2] = 1;
  return t;
}
TensorView per_row(TensorView t, int64_t batches, int64_t rows, int64_t cols) {
  t = per_batch(t, batches, rows, cols);
  t.strides[0] = rows * cols, t.strides[1] = cols;
  return t;
}

void scale(const ScaleRows& s) {
  int64_t cols = s.x.sizes[s.x.ndim - 1], rows = s.rows_per_batch;
  if (s.x.numel() == 0) return;
  int64_t batches = s.x.numel() / (cols * rows);
  TensorView y = per_row(s.y, batches, rows, cols), x = per_row(s.x, batches, rows, cols),
             factor = per_batch(s.factor, batches, rows, cols);
  TensorView base = s.base_per_batch ? per_batch(s.base, batches, rows, cols) : per_row(s.base, batches, rows, cols);
  as_float(s.x.dtype, [&](auto t) {
    using T = decltype(t);
    elementwise<T, T, T, T>("scale_rows", Scaled<T>{real_t<T>(s.one)}, y, x, factor, base);
  });
}
SF_KERNEL(scale_rows, DeviceType::CUDA, "native", 0, scale, nullptr)

}  // namespace
}  // namespace sf::cuda
