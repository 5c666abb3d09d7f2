// layer_norm and rms_norm on CUDA, one kernel each way for both: rms_norm has no mean and no bias.
// Gradients that sum over rows go in two steps: partial sums of pieces of rows, then sums of those; no atomics, so that the same
// input gives the same bits.
#pragma once
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/scratch.h"

namespace sf::cuda {

// The members of LayerNormForward and RmsNormForward; what is absent is null.
template <class T> struct RowNorm {
  const T *x, *residual;
  T *sum, *y;
  Numbers weight, bias, scale, shift;
  int64_t rows, cols, rows_per_batch, scale_stride, shift_stride;
  real_t<T> eps;
  real_t<T>*mean, *rstd;
};

template <bool kMean, class T, int kGroup, int V> __global__ void __launch_bounds__(kThreads) row_norm(RowNorm<T> n) {
  using A = real_t<T>;
  using G = RowThreads<kGroup>;
  int64_t row = G::row();
  if (row >= n.rows) return;
  const T* x = n.x + row * n.cols;
  T* y = n.y + row * n.cols;
  A v[V], total = 0, squares = 0;
  if (n.residual) {
    const T* residual = n.residual + row * n.cols;
    T* sum = n.sum + row * n.cols;
    for_my_columns<kGroup, V>(n.cols, [&](int64_t c) {
      A r[V];
      read_lanes<V>(x + c, v);
      read_lanes<V>(residual + c, r);
      for (int i = 0; i < V; ++i) v[i] += r[i];
      write_lanes<V>(sum + c, v);
    });
    x = sum;  // each thread reads again what it wrote itself
  }
  if (kMean) {
    for_my_columns<kGroup, V>(n.cols, [&](int64_t c) {
      read_lanes<V>(x + c, v);
      for (int i = 0; i < V; ++i) total += v[i];
    });
    total = G::sum(total);
  }
  A mean = total / A(n.cols);
  for_my_columns<kGroup, V>(n.cols, [&](int64_t c) {
    read_lanes<V>(x + c, v);
    for (int i = 0; i < V; ++i) squares += (v[i] - mean) * (v[i] - mean);
  });
  squares = G::sum(squares);
  A rstd = A(1) / root(squares / A(n.cols) + n.eps);
  if (G::lane() == 0 && n.mean) n.mean[row] = mean;
  if (G::lane() == 0 && n.rstd) n.rstd[row] = rstd;
  int64_t batch = row / n.rows_per_batch;
  for_my_columns<kGroup, V>(n.cols, [&](int64_t c) {
    read_lanes<V>(x + c, v);
    for (int i = 0; i < V; ++i) {
      A z = (v[i] - mean) * rstd;
      if (n.weight) z *= entry<A>(n.weight, c + i);
      if (n.bias) z += entry<A>(n.bias, c + i);
      if (n.scale) z *= A(1) + entry<A>(n.scale, batch * n.scale_stride + c + i);
      if (n.shift) z += entry<A>(n.shift, batch * n.shift_stride + c + i);
      v[i] = z;
    }
    write_lanes<V>(y + c, v);
  });
}

template <class T> struct RowNormGradient {
  const T *x, *dy, *dsum;
  T* dx;
  Numbers weight, bias, scale;
  int64_t rows, cols, rows_per_batch, scale_stride;
  const real_t<T>*mean, *rstd;  // mean is null for rms_norm
};

template <class T, int kGroup, int V> __global__ void __launch_bounds__(kThreads) row_norm_dx(RowNormGradient<T> n) {
  using A = real_t<T>;
  using G = RowThreads<kGroup>;
  int64_t row = G::row();
  if (row >= n.rows) return;
  const T *x = n.x + row * n.cols, *dy = n.dy + row * n.cols;
  T* dx = n.dx + row * n.cols;
  A mean = n.mean ? n.mean[row] : A(0), rstd = n.rstd[row], sum = 0, sum_hat = 0, v[V], g[V];
  int64_t batch = row / n.rows_per_batch;
  auto gradient_of_hat = [&](int64_t c) {
    read_lanes<V>(x + c, v);
    read_lanes<V>(dy + c, g);
    for (int i = 0; i < V; ++i) {
      v[i] = (v[i] - mean) * rstd;
      if (n.weight) g[i] *= entry<A>(n.weight, c + i);
      if (n.scale) g[i] *= A(1) + entry<A>(n.scale, batch * n.scale_stride + c + i);
    }
  };
  for_my_columns<kGroup, V>(n.cols, [&](int64_t c) {
    gradient_of_hat(c);
    for (int i = 0; i < V; ++i) sum += g[i], sum_hat += g[i] * v[i];
  });
  sum = n.mean ? G::sum(sum) / A(n.cols) : A(0);
  sum_hat = G::sum(sum_hat) / A(n.cols);
  for_my_columns<kGroup, V>(n.cols, [&](int64_t c) {
    gradient_of_hat(c);
    for (int i = 0; i < V; ++i) v[i] = rstd * (g[i] - sum - v[i] * sum_hat);
    if (n.dsum) {
      read_lanes<V>(n.dsum + row * n.cols + c, g);
      for (int i = 0; i < V; ++i) v[i] += g[i];
    }
    write_lanes<V>(dx + c, v);
  });
}

enum ColumnSum { kWeightSum, kBiasSum, kScaleSum, kShiftSum, kColumnSums };

// partial[piece][what][column] over the rows of a piece; a piece lies within a batch. 32 columns by 8 rows a block.
template <class T>
__global__ void __launch_bounds__(kThreads) row_norm_partial_sums(RowNormGradient<T> n, int64_t piece_rows, int64_t pieces_per_batch, double* partial) {
  using A = real_t<T>;
  constexpr int kRows = kThreads / kWarp;
  __shared__ double sums[kColumnSums][kRows][kWarp];
  int column = int(threadIdx.x) % kWarp, of_row = int(threadIdx.x) / kWarp;
  int64_t blocks_wide = (n.cols + kWarp - 1) / kWarp, piece = blockIdx.x / blocks_wide, c = blockIdx.x % blocks_wide * kWarp + column;
  int64_t batch = piece / pieces_per_batch, first = batch * n.rows_per_batch + piece % pieces_per_batch * piece_rows;
  int64_t batch_end = (batch + 1) * n.rows_per_batch, end = first + piece_rows < batch_end ? first + piece_rows : batch_end;
  double s[kColumnSums] = {};
  if (c < n.cols) {
    A weight = n.weight ? entry<A>(n.weight, c) : A(1), bias = n.bias ? entry<A>(n.bias, c) : A(0);
    A one_plus_scale = n.scale ? A(1) + entry<A>(n.scale, batch * n.scale_stride + c) : A(1);
    for (int64_t r = first + of_row; r < end; r += kRows) {
      A hat = (A(widen(n.x[r * n.cols + c])) - (n.mean ? n.mean[r] : A(0))) * n.rstd[r], dy = widen(n.dy[r * n.cols + c]);
      s[kWeightSum] += dy * one_plus_scale * hat;
      s[kBiasSum] += dy * one_plus_scale;
      s[kScaleSum] += dy * (hat * weight + bias);
      s[kShiftSum] += dy;
    }
  }
  for (int k = 0; k < kColumnSums; ++k) sums[k][of_row][column] = s[k];
  __syncthreads();
  if (of_row < kColumnSums && c < n.cols) {
    double total = 0;
    for (int r = 0; r < kRows; ++r) total += sums[of_row][r][column];
    partial[(piece * kColumnSums + of_row) * n.cols + c] = total;
  }
}

struct ColumnTotals {
  const double* partial;
  int64_t cols, batches, pieces_per_batch;
  Numbers dweight, dbias, dscale, dshift;
};
template <class A> __global__ void __launch_bounds__(kThreads) row_norm_total_sums(ColumnTotals t) {
  int64_t c = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= t.cols) return;
  double all[kColumnSums] = {};
  for (int64_t b = 0; b < t.batches; ++b) {
    double of_batch[kColumnSums] = {};
    for (int64_t p = b * t.pieces_per_batch; p < (b + 1) * t.pieces_per_batch; ++p)
      for (int k = 0; k < kColumnSums; ++k) of_batch[k] += t.partial[(p * kColumnSums + k) * t.cols + c];
    if (t.dscale) t.dscale.set(b * t.cols + c, A(of_batch[kScaleSum]));
    if (t.dshift) t.dshift.set(b * t.cols + c, A(of_batch[kShiftSum]));
    for (int k = 0; k < kColumnSums; ++k) all[k] += of_batch[k];
  }
  if (t.dweight) t.dweight.set(c, A(all[kWeightSum]));
  if (t.dbias) t.dbias.set(c, A(all[kBiasSum]));
}

template <bool kMean, class T> void run_row_norm(const char* op, Device device, const RowNorm<T>& n) {
  if (n.rows == 0 || n.cols == 0) return;
  bool vectors = aligned_rows<T, lanes_for<T>()>(n.cols, n.x, n.residual, n.sum, n.y);
  choose_rows<T>(n.rows, n.cols, vectors, [&](auto group, auto v, unsigned blocks) { launch(op, device, blocks, row_norm<kMean, T, group(), v()>, n); });
}

// totals: the gradients that are wanted. dscale and dshift are contiguous. The sums come before dx, which may overwrite dy.
template <class T> void run_row_norm_backward(const char* op, Device device, const RowNormGradient<T>& n, ColumnTotals totals) {
  constexpr int64_t kPieceRows = 256;
  int64_t batches = n.rows_per_batch > 0 ? n.rows / n.rows_per_batch : 0, pieces = (n.rows_per_batch + kPieceRows - 1) / kPieceRows;
  if (n.cols > 0 && (totals.dweight.data || totals.dbias.data || totals.dscale.data || totals.dshift.data)) {
    Scratch partial(device, size_t(batches * pieces * kColumnSums * n.cols) * sizeof(double));
    unsigned wide = unsigned((n.cols + kWarp - 1) / kWarp);
    if (n.rows > 0) launch(op, device, unsigned(batches * pieces) * wide, row_norm_partial_sums<T>, n, kPieceRows, pieces, partial.as<double>());
    totals.partial = partial.as<double>();
    totals.cols = n.cols;
    totals.batches = n.rows > 0 ? batches : 0;
    totals.pieces_per_batch = pieces;
    launch(op, device, blocks_for(n.cols, 1), row_norm_total_sums<real_t<T>>, totals);
  }
  if (n.rows == 0 || n.cols == 0) return;
  bool vectors = aligned_rows<T, lanes_for<T>()>(n.cols, n.x, n.dy, n.dsum, n.dx);
  choose_rows<T>(n.rows, n.cols, vectors, [&](auto group, auto v, unsigned blocks) { launch(op, device, blocks, row_norm_dx<T, group(), v()>, n); });
}

// [B, C] with last stride 1: how far the next batch's row is.
inline int64_t batch_stride(const TensorView& t) { return t.defined() && t.ndim == 2 && t.sizes[0] > 1 ? t.strides[0] : 0; }
template <class T> T* data_or_null(const TensorView& t) { return t.defined() ? t.as<T>() : nullptr; }

// The calls of LayerNormForward and RmsNormForward, and of their backwards: what only layer_norm has is asked for where it is.
template <class Args>
concept HasMean = requires(const Args& a) {
  a.mean;
};
template <class T, HasMean Args> void set_mean(RowNorm<T>& n, const Args& f) { n.bias = f.bias, n.mean = data_or_null<real_t<T>>(f.mean); }
template <class T, class Args> void set_mean(RowNorm<T>&, const Args&) {}
template <class T, HasMean Args> void set_mean(RowNormGradient<T>& n, ColumnTotals& totals, const Args& b) {
  n.bias = b.bias, n.mean = b.mean.template as<real_t<T>>();
  totals.dbias = b.dbias;
}
template <class T, class Args> void set_mean(RowNormGradient<T>&, ColumnTotals&, const Args&) {}

template <class Args> void row_norm_forward(const char* op, const Args& f) {
  as_float(f.x.dtype, [&](auto t) {
    using T = decltype(t);
    RowNorm<T> n{};
    n.x = f.x.template as<T>(), n.residual = data_or_null<const T>(f.residual), n.sum = data_or_null<T>(f.sum), n.y = f.y.template as<T>();
    n.weight = f.weight, n.scale = f.scale, n.shift = f.shift;
    n.cols = f.cols, n.rows = f.cols > 0 ? f.x.numel() / f.cols : 0, n.rows_per_batch = f.rows_per_batch;
    n.scale_stride = batch_stride(f.scale), n.shift_stride = batch_stride(f.shift);
    n.eps = real_t<T>(f.eps), n.rstd = data_or_null<real_t<T>>(f.rstd);
    set_mean(n, f);
    run_row_norm<HasMean<Args>>(op, f.x.device, n);
  });
}
template <class Args> void row_norm_backward(const char* op, const Args& b) {
  as_float(b.x.dtype, [&](auto t) {
    using T = decltype(t);
    RowNormGradient<T> n{};
    n.x = b.x.template as<T>(), n.dy = b.dy.template as<T>(), n.dsum = data_or_null<const T>(b.dsum), n.dx = b.dx.template as<T>();
    n.weight = b.weight, n.scale = b.scale;
    n.cols = b.cols, n.rows = b.cols > 0 ? b.x.numel() / b.cols : 0, n.rows_per_batch = b.rows_per_batch;
    n.scale_stride = batch_stride(b.scale), n.rstd = b.rstd.template as<real_t<T>>();
    ColumnTotals totals{};
    totals.dweight = b.dweight, totals.dscale = b.dscale, totals.dshift = b.dshift;
    set_mean(n, totals, b);
    run_row_norm_backward(op, b.x.device, n, totals);
  });
}

}  // namespace sf::cuda
