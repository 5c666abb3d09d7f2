// softmax and log_softmax on CUDA: some lanes or a block per row; device memory is read and written once.
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

// Rows that registers hold: their exponentials are computed once. Longer ones: a second look at the row,
// which is in the cache by then.
template <class T, int kGroup, int V, int K>
SF_ROW_KERNEL softmax_rows(SoftmaxRows<T> s, unsigned width, PreviousGrid previous) {
  using A = real_t<T>;
  using E = Exponential<T>;
  RowGroup<kGroup> g{width};
  int64_t row = g.row(), cols = row < s.rows ? s.cols : 0;  // lanes without a row stay for the shuffles
  const T* x = s.x + row * s.cols;
  previous.wait();
  T* y = s.out + row * s.cols;
  A unit = E::unit(s.scale);
  if constexpr (K > 0) {
    RowRuns<T, V, K> runs(g, x, cols);
    A v[K][V], top = -A(INFINITY), total = 0;
    for_my_columns<V, K>(g, cols, [&](auto c, int k) {
      runs.get(c, k, v[k]);
#pragma unroll
      for (int i = 0; i < V; ++i) v[k][i] *= unit, top = larger_of(top, v[k][i]);
    });
    top = g.max(top);
    if (s.log) {
      for_my_columns<V, K>(g, cols, [&](int64_t, int k) {
#pragma unroll
        for (int i = 0; i < V; ++i) v[k][i] -= top, total += E::of(v[k][i]);
      });
    } else {
      for_my_columns<V, K>(g, cols, [&](int64_t, int k) {
#pragma unroll
        for (int i = 0; i < V; ++i) v[k][i] = E::of(v[k][i] - top), total += v[k][i];
      });
    }
    total = g.sum(total);
    A factor = s.log ? E::natural(A(1)) : A(1) / total, shift = s.log ? log_of(total) : A(0);
    if (cols == 0) return;
    for_my_columns<V, K>(g, cols, [&](auto c, int k) {
#pragma unroll
      for (int i = 0; i < V; ++i) v[k][i] = v[k][i] * factor - shift;
      write_lanes<V>(y + c, v[k]);
    });
  } else {
    auto [top, total] = row_exponentials<V>(g, x, cols, unit);
    A factor = s.log ? E::natural(A(1)) : A(1) / total, shift = s.log ? log_of(total) : A(0);
    if (cols == 0) return;
    for_my_columns<V, K>(g, cols, [&, top = top](auto c, int) {
      A v[V];
      read_lanes<V>(x + c, v);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        A z = v[i] * unit - top;
        v[i] = (s.log ? z : E::of(z)) * factor - shift;
      }
      write_lanes<V>(y + c, v);
    });
  }
}

template <class T, int kGroup, int V, int K>
SF_ROW_KERNEL softmax_rows_backward(SoftmaxRows<T> s, unsigned width, PreviousGrid previous) {
  using A = real_t<T>;
  using E = Exponential<T>;
  RowGroup<kGroup> g{width};
  int64_t row = g.row(), cols = row < s.rows ? s.cols : 0;
  previous.wait();
  T* dx = s.out + row * s.cols;
  RowRuns<T, V, K> ys(g, s.x + row * s.cols, cols), dys(g, s.dy + row * s.cols, cols);
  A sum = 0;
  for_my_columns<V, K>(g, cols, [&](auto c, int k) {
    A a[V], b[V];
    dys.get(c, k, b);
    ys.get(c, k, a);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += s.log ? b[i] : a[i] * b[i];
  });
  sum = g.sum(sum);
  if (cols == 0) return;
  A unit = E::unit(A(1));
  for_my_columns<V, K>(g, cols, [&](auto c, int k) {
    A a[V], b[V];
    dys.get(c, k, b);
    ys.get(c, k, a);
#pragma unroll
    for (int i = 0; i < V; ++i) a[i] = s.scale * (s.log ? b[i] - E::of(a[i] * unit) * sum : a[i] * (b[i] - sum));
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
                   [&](auto group, auto v, auto k, unsigned blocks, unsigned width) {
                     launch("softmax", f.x.device, blocks, softmax_rows<T, group(), v(), k()>, s, width);
                   });
  });
}

void backward(const SoftmaxBackward& b) {
  int64_t cols = columns(b.y);
  if (b.y.numel() == 0) return;
  as_float(b.y.dtype, [&](auto t) {
    using T = decltype(t);
    SoftmaxRows<T> s{b.y.as<T>(), b.dy.as<T>(), b.dx.as<T>(), b.y.numel() / cols, cols, real_t<T>(b.scale), b.log};
    choose_rows<T>(s.rows, cols, aligned_rows<T, lanes_for<T>()>(cols, s.x, s.dy, s.out),
                   [&](auto group, auto v, auto k, unsigned blocks, unsigned width) {
                     launch("softmax_backward", b.y.device, blocks, softmax_rows_backward<T, group(), v(), k()>, s,
                            width);
                   });
  });
}

SF_KERNEL(softmax_forward, DeviceType::CUDA, "native", 0, forward, nullptr)
SF_KERNEL(softmax_backward, DeviceType::CUDA, "native", 0, backward, nullptr)

}  // namespace
}  // namespace sf::cuda
