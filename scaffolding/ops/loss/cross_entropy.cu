// Cross entropy of rows of logits on CUDA: some lanes or a block per row, each row read once each way; the
// probabilities are never stored.
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/ops/loss/kernel.h"

namespace sf::cuda {
namespace {

template <class T> struct Rows {
  const T* x;
  const int64_t* target;
  const real_t<T>* weight;  // null: ones
  int64_t rows, cols, ignore_index, dy_stride;
  real_t<T> smoothing;
  real_t<T>*loss, *row_weight, *lse;
  const real_t<T>* dy;
  T* dx;
};

template <class T, int kGroup, int V>
__global__ void __launch_bounds__(kThreads) forward_rows(Rows<T> r, unsigned width) {
  using A = real_t<T>;
  using E = Exponential<T>;
  RowGroup<kGroup> g{width};
  int64_t row = g.row(), cols = row < r.rows ? r.cols : 0;  // lanes without a row stay for the shuffles
  const T* x = r.x + row * r.cols;
  auto e = row_exponentials<V>(g, x, cols, E::unit(A(1)));
  A top = E::natural(e.top), log_total = log_of(e.total), spread = 0;
  if (r.smoothing > A(0)) {
    for_my_columns<V, 0>(g, cols, [&](int64_t c, int) {
      A v[V];
      read_lanes<V>(x + c, v);
#pragma unroll
      for (int i = 0; i < V; ++i) spread += (r.weight ? r.weight[c + i] : A(1)) * (log_total - (v[i] - top));
    });
    spread = g.sum(spread);
  }
  if (g.lane() != 0 || cols == 0) return;
  int64_t t = r.target[row];
  bool counts = t != r.ignore_index && t >= 0 && t < r.cols;
  A weight = !counts ? A(0) : r.weight ? r.weight[t] : A(1);
  A value = counts ? (A(1) - r.smoothing) * weight * (log_total - (A(widen(x[t])) - top)) : A(0);
  r.loss[row] = counts && r.smoothing > A(0) ? value + r.smoothing / A(r.cols) * spread : value;
  r.row_weight[row] = weight;
  r.lse[2 * row] = top;
  r.lse[2 * row + 1] = log_total;
}

template <class T, int kGroup, int V>
__global__ void __launch_bounds__(kThreads) backward_rows(Rows<T> r, unsigned width) {
  using A = real_t<T>;
  using E = Exponential<T>;
  RowGroup<kGroup> g{width};
  int64_t row = g.row(), cols = row < r.rows ? r.cols : 0;
  const T* x = r.x + row * r.cols;
  T* dx = r.dx + row * r.cols;
  A all_weights = A(r.cols);
  if (r.weight && r.smoothing > A(0)) {
    all_weights = 0;
    for_my_columns<1, 0>(g, cols, [&](int64_t c, int) { all_weights += r.weight[c]; });
    all_weights = g.sum(all_weights);
  }
  if (cols == 0) return;
  int64_t t = r.target[row];
  bool counts = t != r.ignore_index && t >= 0 && t < r.cols;
  if (!counts) {
    for_my_columns<V, 0>(g, cols, [&](int64_t c, int) {
      A v[V] = {};
      write_lanes<V>(dx + c, v);
    });
    return;
  }
  A top = r.lse[2 * row], log_total = r.lse[2 * row + 1], dy = r.dy[row * r.dy_stride], unit = E::unit(A(1)),
    shift = (top + log_total) * unit;
  A each = dy * (r.smoothing / A(r.cols)), hit = dy * ((A(1) - r.smoothing) * (r.weight ? r.weight[t] : A(1))),
    factor = hit + each * all_weights;
  for_my_columns<V, 0>(g, cols, [&](int64_t c, int) {
    A v[V];
    read_lanes<V>(x + c, v);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = factor * E::of(sizeof(T) == 2 ? v[i] * unit - shift : v[i] - top - log_total);
    if (each != A(0)) {
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] -= each * (r.weight ? r.weight[c + i] : A(1));
    }
    if (t >= c && t < c + V) {
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] -= c + i == t ? hit : A(0);
    }
    write_lanes<V>(dx + c, v);
  });
}

template <class T>
Rows<T> rows_of(const TensorView& x, const TensorView& target, const TensorView& weight, const TensorView& lse,
                int64_t ignore_index, double smoothing) {
  using A = real_t<T>;
  Rows<T> r{};
  r.x = x.as<T>();
  r.target = target.as<const int64_t>();
  r.weight = weight.defined() ? weight.as<const A>() : nullptr;
  r.rows = x.sizes[0], r.cols = x.sizes[1], r.ignore_index = ignore_index;
  r.smoothing = A(smoothing);
  r.lse = lse.as<A>();
  return r;
}

void forward(const CrossEntropyForward& f) {
  as_float(f.x.dtype, [&](auto t) {
    using T = decltype(t);
    Rows<T> r = rows_of<T>(f.x, f.target, f.weight, f.lse, f.ignore_index, f.label_smoothing);
    r.loss = f.loss.as<real_t<T>>(), r.row_weight = f.row_weight.as<real_t<T>>();
    if (r.rows == 0) return;
    choose_rows<T>(r.rows, r.cols, aligned_rows<T, lanes_for<T>()>(r.cols, r.x),
                   [&](auto group, auto v, auto, unsigned blocks, unsigned width) {
                     launch("cross_entropy", f.x.device, blocks, forward_rows<T, group(), v()>, r, width);
                   });
  });
}
void backward(const CrossEntropyBackward& b) {
  as_float(b.x.dtype, [&](auto t) {
    using T = decltype(t);
    Rows<T> r = rows_of<T>(b.x, b.target, b.weight, b.lse, b.ignore_index, b.label_smoothing);
    r.dy = b.dy.as<const real_t<T>>(), r.dy_stride = b.dy.strides[0], r.dx = b.dx.as<T>();
    if (r.rows == 0) return;
    choose_rows<T>(r.rows, r.cols, aligned_rows<T, lanes_for<T>()>(r.cols, r.x, r.dx),
                   [&](auto group, auto v, auto, unsigned blocks, unsigned width) {
                     launch("cross_entropy_backward", b.x.device, blocks, backward_rows<T, group(), v()>, r, width);
                   });
  });
}

SF_KERNEL(cross_entropy_forward, DeviceType::CUDA, "native", 0, forward, nullptr)
SF_KERNEL(cross_entropy_backward, DeviceType::CUDA, "native", 0, backward, nullptr)

}  // namespace
}  // namespace sf::cuda
