// The gradients of layer_norm and rms_norm on CUDA. Those that sum over rows go in two steps: partial sums of pieces of
// rows, then sums of those; no atomics, so that the same input gives the same bits. Rows of up to 5120 elements give dx
// and the partial sums in one pass.
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

template <class T> struct RowNormGradient {
  const T *x, *dy, *dsum;
  T* dx;
  Numbers weight, bias, scale;
  int64_t rows, cols, rows_per_batch, scale_stride;
  RowBatches batches;
  const real_t<T>*mean, *rstd;  // mean is null for rms_norm
};

// How rows are cut for sums over them: pieces of rows within a batch. Of a block, 2^log_wide threads lie along the
// columns and the others take rows in turn. A thread adds up in T's arithmetic type, at most kRowsOfThread numbers.
struct RowPieces {
  static constexpr int64_t kRowsOfThread = 256;
  int64_t rows;        // of a piece
  unsigned per_batch;  // pieces of a batch
  unsigned log_wide, blocks_wide;

  // blocks: about how many are wanted in all
  RowPieces(int64_t batches, int64_t batch_rows, unsigned log, unsigned wide_blocks, int64_t blocks)
      : log_wide(log), blocks_wide(wide_blocks) {
    int64_t tall = kThreads >> log_wide, row_blocks = (batches > 0 ? batches : 1) * blocks_wide;
    int64_t wanted = blocks > row_blocks ? blocks / row_blocks : 1;
    rows = ((batch_rows + wanted - 1) / wanted + tall - 1) / tall * tall;
    rows = rows > kRowsOfThread * tall ? kRowsOfThread * tall : rows < tall ? tall : rows;
    per_batch = unsigned((batch_rows + rows - 1) / rows);
  }
};
// The rows of the piece that this block takes.
struct PieceOfRows {
  int64_t piece, batch, first, end;
  template <class T> __device__ PieceOfRows(const RowNormGradient<T>& n, const RowPieces& pieces) {
    unsigned p = blockIdx.x / pieces.blocks_wide, b = p / pieces.per_batch;  // in 64 bits 70 instructions each
    piece = p, batch = b;
    first = batch * n.rows_per_batch + int64_t(p - b * pieces.per_batch) * pieces.rows;
    int64_t batch_end = (batch + 1) * n.rows_per_batch;
    end = first + pieces.rows < batch_end ? first + pieces.rows : batch_end;
  }
};

// With h = (x - mean) * rstd and e = dy, the two sums over rows that all gradients of columns follow from.
enum ColumnSum { kSumOfProducts, kSumOfGradients, kColumnSums };  // of e * h, of e

// dx, and with kSums partial[piece][what][column], in one pass over x and dy. Two blocks on each multiprocessor take
// many rows in turn; a thread keeps at most K runs of V columns of one, and the sums of those columns.
template <class T, int V, int K, bool kSums>
SF_ROW_KERNEL row_norm_gradients(RowNormGradient<T> n, RowPieces pieces, real_t<T>* partial, PreviousGrid previous) {
  using A = real_t<T>;
  constexpr int kWarps = kThreads / kWarp;
  // what dy is multiplied with, of each column; then the threads' sums
  __shared__ Vec<A, V> shared[(kSums ? kColumnSums : 1) * K * kThreads];
  __shared__ A of_warps[2][2][kWarps];  // two turns: a barrier for each row
  unsigned wide = 1u << pieces.log_wide, along = threadIdx.x & (wide - 1), of_row = threadIdx.x >> pieces.log_wide,
           tall = kThreads >> pieces.log_wide, warp = threadIdx.x / kWarp;
  PieceOfRows at(n, pieces);
  int cols = int(n.cols);
  previous.wait();
#pragma unroll 1
  for (int run = int(threadIdx.x); run < K * int(wide); run += kThreads) {
    int c = run * V;
    A f[V], more[V];
#pragma unroll
    for (int i = 0; i < V; ++i) f[i] = c < cols ? A(1) : A(0);
    if (c < cols && n.weight) read_entries<T, V>(n.weight, c, f);
    if (c < cols && n.scale) {
      read_entries<T, V>(n.scale, at.batch * n.scale_stride + c, more);
#pragma unroll
      for (int i = 0; i < V; ++i) f[i] += f[i] * more[i];
    }
#pragma unroll
    for (int i = 0; i < V; ++i) shared[run].v[i] = f[i];
  }
  __syncthreads();
  A sums[kSums ? kColumnSums : 1][K][V] = {}, per_column = A(1) / A(cols);
  int turn = 0;
  for (int64_t first = at.first; first < at.end; first += tall) {
    int64_t row = first + of_row, from = row * n.cols;
    int mine = row < at.end ? cols : 0;  // all threads stay for the barriers
    Held<T, V> bits[2][K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      int c = (k * int(wide) + int(along)) * V;
      bits[0][k] = {}, bits[1][k] = {};
      if (c < mine) {
        bits[0][k] = *reinterpret_cast<const Held<T, V>*>(n.x + from + c);
        bits[1][k] = *reinterpret_cast<const Held<T, V>*>(n.dy + from + c);
      }
    }
    A mean = mine > 0 && n.mean ? n.mean[row] : A(0), rstd = mine > 0 ? n.rstd[row] : A(0), sum = 0, sum_hat = 0;
    A v[K][V], g[K][V];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      bits[0][k].widen_to(v[k]);
      bits[1][k].widen_to(g[k]);
      Vec<A, V> f = shared[k * int(wide) + int(along)];
#pragma unroll
      for (int i = 0; i < V; ++i) {
        v[k][i] = (v[k][i] - mean) * rstd;
        if constexpr (kSums) {
          sums[kSumOfProducts][k][i] += g[k][i] * v[k][i];
          sums[kSumOfGradients][k][i] += g[k][i];
        }
        g[k][i] *= f.v[i];
        sum += g[k][i], sum_hat += g[k][i] * v[k][i];
      }
    }
    for (unsigned with = (wide < kWarp ? wide : kWarp) / 2; with > 0; with /= 2)
      sum += __shfl_xor_sync(~0u, sum, int(with)), sum_hat += __shfl_xor_sync(~0u, sum_hat, int(with));
    if (wide > kWarp) {
      if (threadIdx.x % kWarp == 0) of_warps[turn][0][warp] = sum, of_warps[turn][1][warp] = sum_hat;
      __syncthreads();
      sum = 0, sum_hat = 0;
      unsigned count = wide / kWarp, begin = of_row * count;
#pragma unroll
      for (unsigned w = 0; w < kWarps; ++w)
        if (w < count) sum += of_warps[turn][0][begin + w], sum_hat += of_warps[turn][1][begin + w];
      turn ^= 1;
    }
    sum = n.mean ? sum * per_column : A(0);
    sum_hat *= per_column;
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int i = 0; i < V; ++i) v[k][i] = rstd * (g[k][i] - sum - v[k][i] * sum_hat);
    if (n.dsum) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        int c = (k * int(wide) + int(along)) * V;
        if (c < mine) bits[0][k] = *reinterpret_cast<const Held<T, V>*>(n.dsum + from + c);
      }
#pragma unroll
      for (int k = 0; k < K; ++k) {
        bits[0][k].widen_to(g[k]);
#pragma unroll
        for (int i = 0; i < V; ++i) v[k][i] += g[k][i];
      }
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      int c = (k * int(wide) + int(along)) * V;
      if (c < mine) *reinterpret_cast<Held<T, V>*>(n.dx + from + c) = hold<T>(v[k]);
    }
  }
  if constexpr (kSums) {
    __syncthreads();  // the factors are read
#pragma unroll
    for (int what = 0; what < kColumnSums; ++what)
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int i = 0; i < V; ++i) shared[(what * K + k) * kThreads + int(threadIdx.x)].v[i] = sums[what][k][i];
    __syncthreads();
#pragma unroll 1
    for (unsigned task = threadIdx.x; task < kColumnSums * K * wide; task += kThreads) {
      unsigned run = task >> pieces.log_wide, lane = task & (wide - 1), what = run / K;
      int c = int((run % K) * wide + lane) * V;
      if (c >= cols) continue;
      Vec<A, V> total = shared[run * kThreads + lane];
#pragma unroll 4
      for (unsigned r = 1; r < tall; ++r) {
        Vec<A, V> more = shared[run * kThreads + r * wide + lane];
#pragma unroll
        for (int i = 0; i < V; ++i) total.v[i] += more.v[i];
      }
      *reinterpret_cast<Vec<A, V>*>(partial + (at.piece * kColumnSums + what) * n.cols + c) = total;
    }
  }
}

// partial[piece][what][column] of rows that row_norm_gradients does not take.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    row_norm_partial_sums(RowNormGradient<T> n, RowPieces pieces, real_t<T>* partial, PreviousGrid previous) {
  using A = real_t<T>;
  __shared__ A shared[kThreads][V + 1];  // one more than a vector: neighbours in other banks
  unsigned wide = 1u << pieces.log_wide, along = threadIdx.x & (wide - 1), of_row = threadIdx.x >> pieces.log_wide,
           tall = kThreads >> pieces.log_wide;
  PieceOfRows at(n, pieces);
  int64_t first_column = int64_t(blockIdx.x % pieces.blocks_wide) * wide * V, c = first_column + along * V;
  previous.wait();
  A sums[kColumnSums][V] = {};
  if (c < n.cols) {
    const T *x = n.x + (at.first + of_row) * n.cols + c, *dy = n.dy + (at.first + of_row) * n.cols + c;
    int64_t step = tall * n.cols;
#pragma unroll 4
    for (int64_t r = at.first + of_row; r < at.end; r += tall, x += step, dy += step) {
      A v[V], g[V], mean = n.mean ? n.mean[r] : A(0), rstd = n.rstd[r];
      read_lanes<V>(x, v);
      read_lanes<V>(dy, g);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        sums[kSumOfProducts][i] += g[i] * ((v[i] - mean) * rstd);
        sums[kSumOfGradients][i] += g[i];
      }
    }
  }
#pragma unroll
  for (int what = 0; what < kColumnSums; ++what) {
    if (what > 0) __syncthreads();  // the last ones are read
#pragma unroll
    for (int i = 0; i < V; ++i) shared[threadIdx.x][i] = sums[what][i];
    __syncthreads();
    for (unsigned lane = threadIdx.x; lane < wide * V; lane += kThreads) {
      if (first_column + lane >= n.cols) continue;
      A total = 0;
      for (unsigned r = 0; r < tall; ++r) total += shared[r * wide + lane / V][lane % V];
      partial[(at.piece * kColumnSums + what) * n.cols + first_column + lane] = total;
    }
  }
}

// dx alone, of rows that row_norm_gradients does not take.
template <class T, int kGroup, int V, int K>
SF_ROW_KERNEL row_norm_dx(RowNormGradient<T> n, unsigned width, PreviousGrid previous) {
  using A = real_t<T>;
  RowGroup<kGroup> group{width};
  int64_t row = group.row(), cols = row < n.rows ? n.cols : 0;  // lanes without a row stay for the shuffles
  T* dx = n.dx + row * n.cols;
  previous.wait();
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

struct ColumnGradients {
  Numbers dweight, dbias, dscale, dshift;  // those that are wanted
  int64_t batches;                         // of dscale and dshift
};
// What the pieces' sums give. Of y = (h * weight + bias) * (1 + scale) + shift, with the sums of a batch,
//   dshift = sum of e, dscale = weight * (sum of e h) + bias * (sum of e),
// and of all batches, each times 1 + scale: dweight = sum of e h, dbias = sum of e.
template <class A> struct ColumnTotals {
  const A* partial;
  int64_t cols, batches, per_batch, scale_stride;
  Numbers weight, bias, scale;
  ColumnGradients d;
};

// 32 columns a block, whose warps share the pieces; in float64. kBatch: dscale and dshift of a batch, else dweight and
// dbias.
template <bool kBatch, class A> __global__ void row_norm_total_sums(ColumnTotals<A> t, PreviousGrid previous) {
  __shared__ double sums[kColumnSums][kWarp][kWarp];
  unsigned along = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp,
           blocks_wide = unsigned((t.cols + kWarp - 1) / kWarp);
  int64_t c = int64_t(blockIdx.x % blocks_wide) * kWarp + along, batch = blockIdx.x / blocks_wide;
  previous.wait();
  double products = 0, gradients = 0;
  if (c < t.cols) {
    int64_t pieces = kBatch ? t.per_batch : t.batches * t.per_batch;
    const A* from = t.partial + batch * t.per_batch * kColumnSums * t.cols + c;
#pragma unroll 8
    for (int64_t p = warp; p < pieces; p += warps) {
      double a = double(from[(p * kColumnSums + kSumOfProducts) * t.cols]),
             b = double(from[(p * kColumnSums + kSumOfGradients) * t.cols]);
      if (!kBatch && t.scale) {
        double f = 1 + entry<double>(t.scale, p / t.per_batch * t.scale_stride + c);
        a *= f, b *= f;
      }
      products += a, gradients += b;
    }
  }
  sums[kSumOfProducts][warp][along] = products, sums[kSumOfGradients][warp][along] = gradients;
  __syncthreads();
  if (warp > 0 || c >= t.cols) return;
  for (unsigned w = 1; w < warps; ++w)
    products += sums[kSumOfProducts][w][along], gradients += sums[kSumOfGradients][w][along];
  if constexpr (kBatch) {
    double weight = t.weight ? entry<double>(t.weight, c) : 1.0, bias = t.bias ? entry<double>(t.bias, c) : 0.0;
    if (t.d.dscale) t.d.dscale.set(batch * t.cols + c, A(weight * products + bias * gradients));
    if (t.d.dshift) t.d.dshift.set(batch * t.cols + c, A(gradients));
  } else {
    if (t.d.dweight) t.d.dweight.set(c, A(products));
    if (t.d.dbias) t.d.dbias.set(c, A(gradients));
  }
}

template <bool kBatch, class A>
void run_total_sums(const char* op, Device device, const ColumnTotals<A>& t, int64_t targets) {
  int64_t pieces = kBatch ? t.per_batch : t.batches * t.per_batch, warps = 1;
  while (warps < kWarp && warps * 4 < pieces) warps *= 2;
  launch(op, device, Blocks{unsigned((t.cols + kWarp - 1) / kWarp * targets), unsigned(warps * kWarp)},
         row_norm_total_sums<kBatch, A>, t);
}

// dscale and dshift are contiguous. Where dx is a pass of its own the sums come before it: it may overwrite dy.
template <class T>
void run_row_norm_backward(const char* op, Device device, RowNormGradient<T> n, const ColumnGradients& d) {
  using A = real_t<T>;
  constexpr int64_t kBlocks = 264;  // two for each multiprocessor of a large GPU
  constexpr int V = lanes_for<T>(), kShort = sizeof(T) == 8 ? 2 : 4, K = 5;
  if (n.cols == 0) return;
  bool vectors = aligned_rows<T, V>(n.cols, n.x, n.dy, n.dsum, n.dx) && vector_entries(n.weight) &&
                 vector_entries(n.bias) && vector_entries(n.scale, n.scale_stride);
  bool short_rows = aligned_rows<T, kShort>(n.cols, n.x, n.dy, n.dsum, n.dx) && n.cols <= K * kShort * kThreads &&
                    vector_entries(n.weight) && vector_entries(n.scale, n.scale_stride);
  bool of_all = d.dweight.data || d.dbias.data, of_batches = d.dscale.data || d.dshift.data;
  if (!of_batches && !n.scale.data) n.rows_per_batch = n.rows;
  int64_t batches = n.rows > 0 ? n.rows / n.rows_per_batch : 0, batch_rows = batches > 0 ? n.rows_per_batch : 0;

  unsigned log_wide = 2, blocks_wide = 1;
  int64_t blocks = of_all || of_batches ? kBlocks : 2 * kBlocks, columns = short_rows ? K * kShort
                                                                           : vectors  ? V
                                                                                      : 1;  // of a thread
  while ((int64_t(columns) << log_wide) < n.cols && (short_rows || log_wide < 5)) ++log_wide;
  if (!short_rows) {
    blocks_wide = unsigned((n.cols + (columns << log_wide) - 1) / (columns << log_wide)), blocks *= 4;
  }
  RowPieces pieces(batches, batch_rows, log_wide, blocks_wide, blocks);
  unsigned count = unsigned(batches * pieces.per_batch) * blocks_wide;

  if (of_all || of_batches) {
    Scratch partial(device, size_t(batches * pieces.per_batch * kColumnSums * n.cols) * sizeof(A));
    if (batches > 0) {
      auto kernel = short_rows ? row_norm_gradients<T, kShort, K, true>
                    : vectors  ? row_norm_partial_sums<T, V>
                               : row_norm_partial_sums<T, 1>;
      launch(op, device, count, kernel, n, pieces, partial.as<A>());
    }
    ColumnTotals<A> t{partial.as<A>(), n.cols, batches, pieces.per_batch, n.scale_stride, n.weight, n.bias, n.scale, d};
    if (of_all) run_total_sums<false>(op, device, t, 1);
    if (of_batches && d.batches > 0) run_total_sums<true>(op, device, t, d.batches);
  } else if (short_rows && batches > 0) {
    launch(op, device, count, row_norm_gradients<T, kShort, K, false>, n, pieces, static_cast<A*>(nullptr));
  }
  if (short_rows || n.rows == 0) return;
  choose_rows<T>(n.rows, n.cols, vectors, [&](auto group, auto v, auto k, unsigned dx_blocks, unsigned width) {
    if constexpr (group() == kThreads || v() == 1)  // row_norm_gradients took the others
      launch(op, device, dx_blocks, row_norm_dx<T, group(), v(), k()>, n, width);
  });
}

}  // namespace sf::cuda
