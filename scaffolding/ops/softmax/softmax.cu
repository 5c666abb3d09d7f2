// softmax and log_softmax on CUDA: a warp or a block per row; device memory is read and written once.
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/ops/softmax/kernel.h"

namespace sf::cuda {
namespace {

template <class T> struct SoftmaxRows {
  const T *x, *dy;  // backward: x is y
  T* out;
  int64_t rows, cols;
  real_t<T> scale;
  bool log;
};

template <class T, int kGroup, int V> __global__ void __launch_bounds__(kThreads) softmax_rows(SoftmaxRows<T> s) {
  using A = real_t<T>;
  using G = RowThreads<kGroup>;
  int64_t row = G::row();
  if (row >= s.rows) return;
  const T* x = s.x + row * s.cols;
  T* y = s.out + row * s.cols;
  auto [top, total] = row_exponentials<kGroup, V>(x, s.cols, s.scale);
  A factor = A(1) / total, shift = log_of(total), v[V];
  for_my_columns<kGroup, V>(s.cols, [&](int64_t c) {
    read_lanes<V>(x + c, v);
    for (int i = 0; i < V; ++i) {
      A z = v[i] * s.scale - top;
      v[i] = s.log ? z - shift : exp_of(z) * factor;
    }
    write_lanes<V>(y + c, v);
  });
}

template <class T, int kGroup, int V> __global__ void __launch_bounds__(kThreads) softmax_rows_backward(SoftmaxRows<T> s) {
  using A = real_t<T>;
  using G = RowThreads<kGroup>;
  int64_t row = G::row();
  if (row >= s.rows) return;
  const T *y = s.x + row * s.cols, *dy = s.dy + row * s.cols;
  T* dx = s.out + row * s.cols;
  A sum = 0, a[V], b[V];
  for_my_columns<kGroup, V>(s.cols, [&](int64_t c) {
    read_lanes<V>(dy + c, b);
    if (!s.log) read_lanes<V>(y + c, a);
    for (int i = 0; i < V; ++i) sum += s.log ? b[i] : a[i] * b[i];
  });
  sum = G::sum(sum);
  for_my_columns<kGroup, V>(s.cols, [&](int64_t c) {
    read_lanes<V>(y + c, a);
    read_lanes<V>(dy + c, b);
    for (int i = 0; i < V; ++i) a[i] = s.scale * (s.log ? b[i] - exp_of(a[i]) * sum : a[i] * (b[i] - sum));
    write_lanes<V>(dx + c, a);
  });
}

int64_t columns(const TensorView& x) { return x.ndim == 0 ? 1 : x.sizes[x.ndim - 1]; }

void forward(const SoftmaxForward& f) {
  int64_t cols = columns(f.x);
  if (f.x.numel() == 0) return;
  as_float(f.x.dtype, [&](auto t) {
    using T = decltype(t);
    SoftmaxRows<T> s{f.x.as<T>(), nullptr, f.y.as<T>(), f.x.numel() / cols, cols, real_t<T>(f.scale), f.log};
    choose_rows<T>(s.rows, cols, aligned_rows<T, lanes_for<T>()>(cols, s.x, s.out),
                   [&](auto group, auto v, unsigned blocks) { launch("softmax", f.x.device, blocks, softmax_rows<T, group(), v()>, s); });
  });
}

void backward(const SoftmaxBackward& b) {
  int64_t cols = columns(b.y);
  if (b.y.numel() == 0) return;
  as_float(b.y.dtype, [&](auto t) {
    using T = decltype(t);
    SoftmaxRows<T> s{b.y.as<T>(), b.dy.as<T>(), b.dx.as<T>(), b.y.numel() / cols, cols, real_t<T>(b.scale), b.log};
    choose_rows<T>(s.rows, cols, aligned_rows<T, lanes_for<T>()>(cols, s.x, s.dy, s.out),
                   [&](auto group, auto v, unsigned blocks) { launch("softmax_backward", b.y.device, blocks, softmax_rows_backward<T, group(), v()>, s); });
  });
}

SF_KERNEL(softmax_forward, DeviceType::CUDA, "native", 0, forward, nullptr)
SF_KERNEL(softmax_backward, DeviceType::CUDA, "native", 0, backward, nullptr)

}  // namespace
}  // namespace sf::cuda
