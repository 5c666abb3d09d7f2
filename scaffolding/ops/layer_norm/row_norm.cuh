// layer_norm and rms_norm on CUDA, the same kernels for both: rms_norm has no mean and no bias.
#pragma once
#include "scaffolding/ops/layer_norm/row_norm_backward.cuh"

namespace sf::cuda {

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

template <bool kMean, class T, int kGroup, int V, int K>
SF_ROW_KERNEL row_norm(RowNorm<T> n, unsigned width, PreviousGrid previous) {
  using A = real_t<T>;
  RowGroup<kGroup> g{width};
  int64_t row = g.row(), cols = row < n.rows ? n.cols : 0;  // lanes without a row stay for the shuffles
  T* y = n.y + row * n.cols;
  previous.wait();
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

// The one pair of factor and offset of most calls, weight and bias or scale and shift, both in dtype P: x's, or float32
// beside 16 bits as under autocast. A row's part of it is loaded together with the row.
template <class P> struct NormPair {
  const P *factor, *offset;              // either may be null
  int64_t factor_stride, offset_stride;  // from batch to batch
  bool of_batches, plus_one;             // the factor is 1 + factor[i]
};

// All K runs of a row are asked for at once; zeros behind its end.
template <int V, int K, int kGroup, class T>
__device__ inline void load_runs(const RowGroup<kGroup>& g, int cols, const T* from, Held<T, V> (&to)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    int c = (k * g.step() + g.lane()) * V;
    to[k] = {};
    if (c < cols) to[k] = *reinterpret_cast<const Held<T, V>*>(from + c);
  }
}

// factor and offset of V columns.
template <int V, class P>
__device__ inline void read_pair(const NormPair<P>& pair, int64_t batch, int c, real_t<P> (&factor)[V],
                                 real_t<P> (&offset)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) factor[i] = offset[i] = real_t<P>(0);
  if (pair.factor) read_entries_of<V>(pair.factor + batch * pair.factor_stride + c, factor);
  if (pair.offset) read_entries_of<V>(pair.offset + batch * pair.offset_stride + c, offset);
}

// row_norm where a NormPair says it all. Short code besides few waits: such a call takes a few microseconds, in which
// each multiprocessor also loads the instructions.
template <bool kMean, class T, class P, int kGroup, int V, int K>
__global__ void __launch_bounds__(kThreads, 3)
    row_norm_of_pair(RowNorm<T> n, NormPair<P> pair, unsigned width, PreviousGrid previous) {
  using A = real_t<T>;
  constexpr bool kHeld = std::is_same_v<T, P>;  // numbers twice as long would take too many registers
  RowGroup<kGroup> g{width};
  int64_t row = g.row();
  int cols = row < n.rows ? int(n.cols) : 0;  // lanes without a row stay for the shuffles
  Held<T, V> xs[K], factors[K], offsets[K];
  previous.wait();
  load_runs<V, K>(g, cols, n.x + row * n.cols, xs);
  if (n.residual) {
    load_runs<V, K>(g, cols, n.residual + row * n.cols, factors);
    for_my_columns<V, K>(g, cols, [&](int c, int k) {
      A v[V], r[V];
      xs[k].widen_to(v);
      factors[k].widen_to(r);
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] += r[i];
      xs[k] = hold<T>(v);
      *reinterpret_cast<Held<T, V>*>(n.sum + row * n.cols + c) = xs[k];
    });
  }
  int64_t batch = pair.of_batches ? n.batches.of(row) : 0;
  if constexpr (kHeld) {
    load_runs<V, K>(g, pair.factor ? cols : 0, pair.factor + batch * pair.factor_stride, factors);
    load_runs<V, K>(g, pair.offset ? cols : 0, pair.offset + batch * pair.offset_stride, offsets);
  }
  A per_column = A(1) / A(int(n.cols)), mean = 0, squares = 0;
  if constexpr (kMean) {
    A total = 0;
    for_all_columns<V, K>(g, cols, [&](int, int k, bool) {
      A v[V];
      xs[k].widen_to(v);
#pragma unroll
      for (int i = 0; i < V; ++i) total += v[i];
    });
    mean = g.sum(total) * per_column;
  }
  for_all_columns<V, K>(g, cols, [&](int, int k, bool inside) {
    A v[V], sum = 0;
    xs[k].widen_to(v);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += (v[i] - mean) * (v[i] - mean);
    squares += inside ? sum : A(0);
  });
  squares = g.sum(squares);
  if (cols == 0) return;
  A rstd = inverse_root(squares * per_column + n.eps), shift = -mean * rstd;
  if (g.lane() == 0 && n.mean) n.mean[row] = mean;
  if (g.lane() == 0 && n.rstd) n.rstd[row] = rstd;
  T* y = n.y + row * n.cols;
  for_my_columns<V, K>(g, cols, [&](int c, int k) {
    A v[V], a[V], b[V];
    xs[k].widen_to(v);
    if constexpr (kHeld) factors[k].widen_to(a), offsets[k].widen_to(b);
    else read_pair<V>(pair, batch, c, a, b);
    if (pair.plus_one) {
#pragma unroll
      for (int i = 0; i < V; ++i) a[i] += A(1);
    }
#pragma unroll
    for (int i = 0; i < V; ++i) {
      v[i] = sizeof(T) == 2 ? v[i] * rstd + shift : (v[i] - mean) * rstd;
      v[i] = v[i] * a[i] + b[i];
    }
    *reinterpret_cast<Held<T, V>*>(y + c) = hold<T>(v);
  });
}

// Calls f(group, K, blocks, width) for rows that row_norm_of_pair takes: as choose_rows with fewer runs a thread, since
// the pair is kept too; five are the widths of UNets, 320, 640 and 1280, without idle lanes. False for longer rows.
template <int V, class F> bool choose_rows_of_pair(int64_t rows, int64_t cols, const F& f) {
  constexpr int64_t kWanted = int64_t(1) << 17;  // threads, of a GPU of 132 multiprocessors
  constexpr int64_t kFewRows = 512;              // warps for so many would leave multiprocessors without a block
  constexpr int K = 5;
  int64_t runs = cols / V;
  if (runs > 2 * kThreads) return false;
  if (runs > (rows > kFewRows ? K : K - 1) * kWarp) {
    f(int_constant<kThreads>(), int_constant<2>(), unsigned(rows), unsigned(kThreads));
  } else {
    unsigned width = 1;
    while (width < kWarp && width < runs && (width < 4 || width * K < runs || rows * width < kWanted)) width *= 2;
    f(int_constant<kWarp>(), int_constant<K>(), unsigned((rows * width + kThreads - 1) / kThreads), width);
  }
  return true;
}

// False where the call has more than a pair of numbers, or numbers of other dtypes.
template <bool kMean, class T> bool run_row_norm_of_pair(const char* op, Device device, const RowNorm<T>& n) {
  if constexpr (sizeof(T) == 8) {
    return false;  // rare
  } else {
    bool of_batches = n.scale.data || n.shift.data;
    if (of_batches && (n.weight.data || n.bias.data)) return false;
    const Numbers &factor = of_batches ? n.scale : n.weight, &offset = of_batches ? n.shift : n.bias;
    auto run = [&](auto tag) {
      using P = decltype(tag);
      for (const Numbers* p : {&factor, &offset})
        if (p->data && p->dtype != dtype_of<P>::value) return false;
      NormPair<P> pair{static_cast<const P*>(factor.data),
                       static_cast<const P*>(offset.data),
                       n.scale_stride,
                       n.shift_stride,
                       of_batches,
                       of_batches || !factor.data};
      constexpr int V = lanes_for<T>();
      return choose_rows_of_pair<V>(n.rows, n.cols, [&](auto group, auto k, unsigned blocks, unsigned width) {
        launch(op, device, blocks, row_norm_of_pair<kMean, T, P, group(), V, k()>, n, pair, width);
      });
    };
    if (run(T())) return true;
    if constexpr (sizeof(T) == 2) return run(float());
    return false;
  }
}

template <bool kMean, class T> void run_row_norm(const char* op, Device device, const RowNorm<T>& n) {
  if (n.rows == 0 || n.cols == 0) return;
  bool vectors = aligned_rows<T, lanes_for<T>()>(n.cols, n.x, n.residual, n.sum, n.y) && vector_entries(n.weight) &&
                 vector_entries(n.bias) && vector_entries(n.scale, n.scale_stride) &&
                 vector_entries(n.shift, n.shift_stride);
  if (vectors && run_row_norm_of_pair<kMean>(op, device, n)) return;
  choose_rows<T>(n.rows, n.cols, vectors, [&](auto group, auto v, auto k, unsigned blocks, unsigned width) {
    launch(op, device, blocks, row_norm<kMean, T, group(), v(), k()>, n, width);
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
