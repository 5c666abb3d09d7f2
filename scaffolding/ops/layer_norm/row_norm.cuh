// layer_norm and rms_norm on CUDA, one kernel each way for both: rms_norm has no mean and no bias.
// Gradients that sum over rows go in two steps: partial sums of pieces of rows, then sums of those; no atomics, so that
// the same input gives the same bits.
#pragma once
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/cuda/walk.cuh"

namespace sf::cuda {

// Which batch a row belongs to: r / rows_per_batch.
struct RowBatches {
  int64_t rows_per_batch = 1;
  bool small = true;  // 32 bits suffice: a division of 64 bits is 70 instructions
  Divider divider;

  RowBatches() = default;
  RowBatches(int64_t rows, int64_t per_batch)
      : rows_per_batch(per_batch > 0 ? per_batch : 1), small(rows <= INT32_MAX && per_batch <= INT32_MAX) {
    if (small) divider = Divider(uint32_t(rows_per_batch));
  }
  __device__ int64_t of(int64_t row) const {
    return small ? int64_t(divider.quotient(uint32_t(row))) : row / rows_per_batch;
  }
};

// The members of LayerNormForward and RmsNormForward; what is absent is null.
template <class T> struct RowNorm {
  const T *x, *residual;
  T *sum, *y;
  Numbers weight, bias, scale, shift;
  int64_t rows, cols, scale_stride, shift_stride;
  RowBatches batches;
  real_t<T> eps;
  real_t<T>*mean, *rstd;
};

// v[i] * scale[i] + shift[i], or with kPlusOne v[i] * (1 + scale[i]) + shift[i]; either may be absent.
template <bool kPlusOne, class T, int V, class A, class At>
__device__ inline void scale_and_shift(A (&v)[V], const Numbers& scale, const Numbers& shift, At scale_at,
                                       At shift_at) {
  A a[V], b[V];
  if (scale) {
    read_entries<T, V>(scale, scale_at, a);
#pragma unroll
    for (int i = 0; i < V; ++i) a[i] = kPlusOne ? A(1) + a[i] : a[i];
  }
  if (shift) read_entries<T, V>(shift, shift_at, b);
  if (scale && shift) {
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = v[i] * a[i] + b[i];
  } else if (scale) {
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] *= a[i];
  } else if (shift) {
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] += b[i];
  }
}

template <bool kMean, class T, int kGroup, int V, int K> SF_ROW_KERNEL row_norm(RowNorm<T> n, unsigned width) {
  using A = real_t<T>;
  RowGroup<kGroup> g{width};
  int64_t row = g.row(), cols = row < n.rows ? n.cols : 0;  // lanes without a row stay for the shuffles
  T* y = n.y + row * n.cols;
  WideRuns<T, V, K> runs(g, n.x + row * n.cols, cols);
  if (n.residual) {
    RowRuns<T, V, K> residuals(g, n.residual + row * n.cols, cols);
    T* sum = n.sum + row * n.cols;
    for_my_columns<V, K>(g, cols, [&](auto c, int k) {
      A v[V], r[V];
      runs.get(c, k, v);
      residuals.get(c, k, r);
      Vec<T, V> rounded;
#pragma unroll
      for (int i = 0; i < V; ++i) rounded.v[i] = to_storage<T>(v[i] + r[i]);
      *reinterpret_cast<Vec<T, V>*>(sum + c) = rounded;
      if constexpr (K > 0) widen_lanes<V>(rounded, runs.kept[k]);
    });
    runs.row = sum;  // without registers each thread reads again what it wrote itself
  }
  A mean = 0, squares = 0;
  if constexpr (kMean) {
    A total = 0;
    for_all_columns<V, K>(g, cols, [&](auto c, int k, bool) {
      A v[V];
      runs.get(c, k, v);
#pragma unroll
      for (int i = 0; i < V; ++i) total += v[i];
    });
    mean = g.sum(total) / A(n.cols);
  }
  for_all_columns<V, K>(g, cols, [&](auto c, int k, bool inside) {
    A v[V], sum = 0;
    runs.get(c, k, v);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += (v[i] - mean) * (v[i] - mean);
    squares += inside ? sum : A(0);
  });
  squares = g.sum(squares);
  if (cols == 0) return;
  A rstd = A(1) / root(squares / A(n.cols) + n.eps), shift = -mean * rstd;
  if (g.lane() == 0 && n.mean) n.mean[row] = mean;
  if (g.lane() == 0 && n.rstd) n.rstd[row] = rstd;
  int64_t batch = n.batches.of(row);
  for_my_columns<V, K>(g, cols, [&](auto c, int k) {
    A v[V];
    runs.get(c, k, v);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = sizeof(T) == 2 ? v[i] * rstd + shift : (v[i] - mean) * rstd;
    scale_and_shift<false, T, V>(v, n.weight, n.bias, c, c);
    scale_and_shift<true, T, V>(v, n.scale, n.shift, batch * n.scale_stride + c, batch * n.shift_stride + c);
    write_lanes<V>(y + c, v);
  });
}

template <class T> struct RowNormGradient {
  const T *x, *dy, *dsum;
  T* dx;
  Numbers weight, bias, scale;
  int64_t rows, cols, rows_per_batch, scale_stride;
  RowBatches batches;
  const real_t<T>*mean, *rstd;  // mean is null for rms_norm
};

template <class T, int kGroup, int V, int K> SF_ROW_KERNEL row_norm_dx(RowNormGradient<T> n, unsigned width) {
  using A = real_t<T>;
  RowGroup<kGroup> group{width};
  int64_t row = group.row(), cols = row < n.rows ? n.cols : 0;  // lanes without a row stay for the shuffles
  T* dx = n.dx + row * n.cols;
  RowRuns<T, V, K> xs(group, n.x + row * n.cols, cols), dys(group, n.dy + row * n.cols, cols);
  A mean = cols > 0 && n.mean ? n.mean[row] : A(0), rstd = cols > 0 ? n.rstd[row] : A(0), sum = 0, sum_hat = 0, v[V],
    g[V];
  int64_t batch = n.batches.of(row);
  auto gradient_of_hat = [&](auto c, int k) {
    A w[V];
    xs.get(c, k, v);
    dys.get(c, k, g);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = (v[i] - mean) * rstd;
    if (n.weight) {
      read_entries<T, V>(n.weight, c, w);
#pragma unroll
      for (int i = 0; i < V; ++i) g[i] *= w[i];
    }
    if (n.scale) {
      read_entries<T, V>(n.scale, batch * n.scale_stride + c, w);
#pragma unroll
      for (int i = 0; i < V; ++i) g[i] += g[i] * w[i];
    }
  };
  for_my_columns<V, K>(group, cols, [&](auto c, int k) {
    gradient_of_hat(c, k);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += g[i], sum_hat += g[i] * v[i];
  });
  sum = n.mean ? group.sum(sum) / A(n.cols) : A(0);
  sum_hat = group.sum(sum_hat) / A(n.cols);
  if (cols == 0) return;
  for_my_columns<V, K>(group, cols, [&](auto c, int k) {
    gradient_of_hat(c, k);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = rstd * (g[i] - sum - v[i] * sum_hat);
    if (n.dsum) {
      read_lanes<V>(n.dsum + row * n.cols + c, g);
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] += g[i];
    }
    write_lanes<V>(dx + c, v);
  });
}

enum ColumnSum { kWeightSum, kBiasSum, kScaleSum, kShiftSum, kColumnSums };

// How the sums over rows are cut: pieces of rows within a batch; of a block, `wide` threads lie along the columns, V
// columns each, and the others take rows in turn. Threads add up in T's arithmetic type, at most kPieceRows numbers;
// what they found is added up in float64.
struct RowPieces {
  static constexpr int64_t kPieceRows = 256;
  int64_t rows, per_batch;  // of a piece; pieces of a batch
  unsigned wide, blocks_wide;

  RowPieces(int64_t batches, int64_t batch_rows, int64_t cols, int V) {
    int64_t runs = (cols + V - 1) / V;
    // Narrower where more than a fifth of the threads would lie behind the last column.
    for (wide = kWarp; wide > 8 && (runs + wide - 1) / wide * wide * 4 > runs * 5;) wide /= 2;
    blocks_wide = unsigned((runs + wide - 1) / wide);
    batches = batches > 0 ? batches : 1;
    constexpr int64_t kBlocks = 1024;  // several for each multiprocessor of a large GPU
    int64_t tall = kThreads / wide, wanted = (kBlocks + batches * blocks_wide - 1) / (batches * blocks_wide);
    rows = (batch_rows + wanted - 1) / wanted;
    rows = rows > kPieceRows ? kPieceRows : rows < 4 * tall ? 4 * tall : rows;
    per_batch = (batch_rows + rows - 1) / rows;
  }
};

// partial[piece][what][column] over the rows of a piece. kSums: those of weight and bias, or all.
template <class T, int V, int kSums>
__global__ void __launch_bounds__(kThreads)
    row_norm_partial_sums(RowNormGradient<T> n, RowPieces pieces, double* partial) {
  using A = real_t<T>;
  __shared__ A sums[kThreads][V + 1];  // one more than a vector: neighbours in other banks
  unsigned along = threadIdx.x % pieces.wide, of_row = threadIdx.x / pieces.wide, tall = kThreads / pieces.wide;
  int64_t piece = blockIdx.x / pieces.blocks_wide,
          c = (int64_t(blockIdx.x % pieces.blocks_wide) * pieces.wide + along) * V;
  int64_t batch = piece / pieces.per_batch, first = batch * n.rows_per_batch + piece % pieces.per_batch * pieces.rows;
  int64_t batch_end = (batch + 1) * n.rows_per_batch,
          end = first + pieces.rows < batch_end ? first + pieces.rows : batch_end;
  A s[kSums][V];
#pragma unroll
  for (int k = 0; k < kSums; ++k)
#pragma unroll
    for (int i = 0; i < V; ++i) s[k][i] = 0;
  if (c < n.cols) {
    A weight[V], bias[V], factor[V];
#pragma unroll
    for (int i = 0; i < V; ++i) weight[i] = A(1), bias[i] = A(0), factor[i] = A(0);
    if (kSums > kScaleSum && n.weight) read_entries<T, V>(n.weight, c, weight);
    if (kSums > kScaleSum && n.bias) read_entries<T, V>(n.bias, c, bias);
    if (kSums > kScaleSum && n.scale) read_entries<T, V>(n.scale, batch * n.scale_stride + c, factor);
    const T *x = n.x + (first + of_row) * n.cols + c, *dy = n.dy + (first + of_row) * n.cols + c;
    int64_t step = tall * n.cols;
#pragma unroll 4
    for (int64_t r = first + of_row; r < end; r += tall, x += step, dy += step) {
      A v[V], g[V], mean = n.mean ? n.mean[r] : A(0), rstd = n.rstd[r];
      read_lanes<V>(x, v);
      read_lanes<V>(dy, g);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        A hat = (v[i] - mean) * rstd;
        if constexpr (kSums > kScaleSum) {
          s[kScaleSum][i] += g[i] * (hat * weight[i] + bias[i]);
          s[kShiftSum][i] += g[i];
          g[i] += g[i] * factor[i];
        }
        s[kWeightSum][i] += g[i] * hat;
        s[kBiasSum][i] += g[i];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kSums; ++k) {
    if (k > 0) __syncthreads();  // the last ones are read
#pragma unroll
    for (int i = 0; i < V; ++i) sums[threadIdx.x][i] = s[k][i];
    __syncthreads();
    for (unsigned at = threadIdx.x; at < pieces.wide * V; at += kThreads) {
      int64_t column = int64_t(blockIdx.x % pieces.blocks_wide) * pieces.wide * V + at;
      if (column >= n.cols) continue;
      double total = 0;
      for (unsigned r = 0; r < tall; ++r) total += double(sums[r * pieces.wide + at / V][at % V]);
      partial[(piece * kSums + k) * n.cols + column] = total;
    }
  }
}

// out[k][target][column] = the sum of partial[first + p][k0 + k][column] over the pieces of a target. 32 columns a
// block, whose warps share the pieces.
struct ColumnTotals {
  const double* partial;
  int64_t cols, pieces;  // of a target
  int sums, first;       // sums of a piece; the first of the two that are wanted
  Numbers out[2];
};
template <class A> __global__ void __launch_bounds__(kThreads) row_norm_total_sums(ColumnTotals t) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ double sums[2][kWarps][kWarp];
  unsigned along = threadIdx.x % kWarp, warp = threadIdx.x / kWarp,
           blocks_wide = unsigned((t.cols + kWarp - 1) / kWarp);
  int64_t c = int64_t(blockIdx.x % blocks_wide) * kWarp + along, target = blockIdx.x / blocks_wide;
  double a = 0, b = 0;
  if (c < t.cols) {
    const double* from = t.partial + (target * t.pieces * t.sums + t.first) * t.cols + c;
#pragma unroll 4
    for (int64_t p = warp; p < t.pieces; p += kWarps)
      a += from[p * t.sums * t.cols], b += from[(p * t.sums + 1) * t.cols];
  }
  sums[0][warp][along] = a, sums[1][warp][along] = b;
  __syncthreads();
  if (warp > 1 || c >= t.cols) return;
  double total = 0;
  for (int w = 0; w < kWarps; ++w) total += sums[warp][w][along];
  if (warp == 0 && t.out[0]) t.out[0].set(target * t.cols + c, A(total));
  if (warp == 1 && t.out[1]) t.out[1].set(target * t.cols + c, A(total));
}

template <bool kMean, class T> void run_row_norm(const char* op, Device device, const RowNorm<T>& n) {
  if (n.rows == 0 || n.cols == 0) return;
  bool vectors = aligned_rows<T, lanes_for<T>()>(n.cols, n.x, n.residual, n.sum, n.y) && vector_entries(n.weight) &&
                 vector_entries(n.bias) && vector_entries(n.scale, n.scale_stride) &&
                 vector_entries(n.shift, n.shift_stride);
  choose_rows<T>(n.rows, n.cols, vectors, [&](auto group, auto v, auto k, unsigned blocks, unsigned width) {
    launch(op, device, blocks, row_norm<kMean, T, group(), v(), k()>, n, width);
  });
}

struct ColumnGradients {
  Numbers dweight, dbias, dscale, dshift;  // those that are wanted
  int64_t batches;                         // of dscale and dshift
};

template <class T, int V, int kSums>
void run_column_sums(const char* op, Device device, const RowNormGradient<T>& n, const ColumnGradients& d) {
  int64_t batches = n.rows > 0 ? n.rows / n.rows_per_batch : 0;
  RowPieces pieces(batches, batches > 0 ? n.rows_per_batch : 0, n.cols, V);
  Scratch partial(device, size_t(batches * pieces.per_batch * kSums * n.cols) * sizeof(double));
  if (batches > 0)
    launch(op, device, unsigned(batches * pieces.per_batch) * pieces.blocks_wide, row_norm_partial_sums<T, V, kSums>, n,
           pieces, partial.as<double>());
  unsigned wide = unsigned((n.cols + kWarp - 1) / kWarp);
  ColumnTotals t{partial.as<double>(), n.cols, batches * pieces.per_batch, kSums, kWeightSum, {d.dweight, d.dbias}};
  if (d.dweight.data || d.dbias.data) launch(op, device, wide, row_norm_total_sums<real_t<T>>, t);
  t.pieces = batches > 0 ? pieces.per_batch : 0, t.first = kScaleSum, t.out[0] = d.dscale, t.out[1] = d.dshift;
  if (kSums > kScaleSum && d.batches > 0)
    launch(op, device, wide * unsigned(d.batches), row_norm_total_sums<real_t<T>>, t);
}

// dscale and dshift are contiguous. The sums come before dx, which may overwrite dy.
template <class T>
void run_row_norm_backward(const char* op, Device device, const RowNormGradient<T>& n, const ColumnGradients& d) {
  constexpr int V = lanes_for<T>();
  bool vectors = aligned_rows<T, V>(n.cols, n.x, n.dy, n.dsum, n.dx) && vector_entries(n.weight) &&
                 vector_entries(n.bias) && vector_entries(n.scale, n.scale_stride);
  bool of_batches = d.dscale.data || d.dshift.data;
  if (n.cols > 0 && (d.dweight.data || d.dbias.data || of_batches)) {
    if (vectors)
      of_batches ? run_column_sums<T, V, kColumnSums>(op, device, n, d)
                 : run_column_sums<T, V, kScaleSum>(op, device, n, d);
    else
      of_batches ? run_column_sums<T, 1, kColumnSums>(op, device, n, d)
                 : run_column_sums<T, 1, kScaleSum>(op, device, n, d);
  }
  if (n.rows == 0 || n.cols == 0) return;
  choose_rows<T>(n.rows, n.cols, vectors, [&](auto group, auto v, auto k, unsigned blocks, unsigned width) {
    launch(op, device, blocks, row_norm_dx<T, group(), v(), k()>, n, width);
  });
}

// [B, C] with last stride 1: how far the next batch's row is.
inline int64_t batch_stride(const TensorView& t) {
  return t.defined() && t.ndim == 2 && t.sizes[0] > 1 ? t.strides[0] : 0;
}
template <class T> T* data_or_null(const TensorView& t) { return t.defined() ? t.as<T>() : nullptr; }

// The calls of LayerNormForward and RmsNormForward, and of their backwards:
// what only layer_norm has is asked for where it is.
template <class Args>
concept HasMean = requires(const Args& a) {
  a.mean;
};
template <class T, HasMean Args> void set_mean(RowNorm<T>& n, const Args& f) {
  n.bias = f.bias, n.mean = data_or_null<real_t<T>>(f.mean);
}
template <class T, class Args> void set_mean(RowNorm<T>&, const Args&) {}
template <class T, HasMean Args> void set_mean(RowNormGradient<T>& n, ColumnGradients& d, const Args& b) {
  n.bias = b.bias, n.mean = b.mean.template as<real_t<T>>();
  d.dbias = b.dbias;
}
template <class T, class Args> void set_mean(RowNormGradient<T>&, ColumnGradients&, const Args&) {}

template <class Args> void row_norm_forward(const char* op, const Args& f) {
  as_float(f.x.dtype, [&](auto t) {
    using T = decltype(t);
    RowNorm<T> n{};
    n.x = f.x.template as<T>(), n.residual = data_or_null<const T>(f.residual), n.sum = data_or_null<T>(f.sum),
    n.y = f.y.template as<T>();
    n.weight = f.weight, n.scale = f.scale, n.shift = f.shift;
    n.cols = f.cols, n.rows = f.cols > 0 ? f.x.numel() / f.cols : 0, n.batches = RowBatches(n.rows, f.rows_per_batch);
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
    n.x = b.x.template as<T>(), n.dy = b.dy.template as<T>(), n.dsum = data_or_null<const T>(b.dsum),
    n.dx = b.dx.template as<T>();
    n.weight = b.weight, n.scale = b.scale;
    n.cols = b.cols, n.rows = b.cols > 0 ? b.x.numel() / b.cols : 0, n.rows_per_batch = b.rows_per_batch;
    n.scale_stride = batch_stride(b.scale), n.rstd = b.rstd.template as<real_t<T>>();
    n.batches = RowBatches(n.rows, n.rows_per_batch);
    ColumnGradients d{};
    d.dweight = b.dweight, d.dscale = b.dscale, d.dshift = b.dshift;
    const TensorView& of_batches = b.dscale.defined() ? b.dscale : b.dshift;
    d.batches = of_batches.defined() && b.cols > 0 ? of_batches.numel() / b.cols : 0;
    set_mean(n, d, b);
    run_row_norm_backward(op, b.x.device, n, d);
  });
}

}  // namespace sf::cuda
