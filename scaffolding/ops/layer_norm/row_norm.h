// The rows of layer_norm and rms_norm on the CPU: a row is read from memory once, its statistics and its output are
// computed from the cache. weight, bias, scale and shift are folded into one float row W and one row B per batch:
//   y = (x - mean) * rstd * W + B,   W = weight (1 + scale),   B = bias (1 + scale) + shift
// Included by layer_norm.cpu.cpp and rms_norm.cpu.cpp only.
#pragma once
#include "scaffolding/backend/cpu/simd_rows.h"

namespace sf {
namespace SF_ISA {

// Fills W[C] and B[C] for one batch. weight and bias are converted rows, or null.
template <class A> struct FoldedRows {
  const A *weight, *bias;  // null: 1 and 0
  TensorView scale, shift;
  int64_t cols;
  A *W, *B, *row;  // [C] each; row is working space

  static const A* batch_row(const TensorView& v, int64_t batch, int64_t cols, A* buffer) {
    TensorView r = v;
    r.ndim = 1;
    r.sizes[0] = cols;
    r.strides[0] = v.strides[v.ndim - 1];
    if (v.ndim > 1) r.data = v.as<char>() + batch * v.strides[0] * int64_t(size_of(v.dtype));
    return converted<A>(r, cols, A(0), buffer);
  }
  void fold(int64_t batch) const {
    for (int64_t c = 0; c < cols; ++c) W[c] = weight ? weight[c] : A(1);
    for (int64_t c = 0; c < cols; ++c) B[c] = bias ? bias[c] : A(0);
    if (scale) {
      const A* s = batch_row(scale, batch, cols, row);
      for (int64_t c = 0; c < cols; ++c) {
        W[c] *= A(1) + s[c];
        B[c] *= A(1) + s[c];
      }
    }
    if (shift) {
      const A* s = batch_row(shift, batch, cols, row);
      for (int64_t c = 0; c < cols; ++c) B[c] += s[c];
    }
  }
};

// kCenter: layer_norm; else rms_norm. Null pointers for absent tensors.
template <class T, bool kCenter>
static void norm_row(const T* x, const T* residual, T* sum, T* y, int64_t C, Acc<T> eps, const Acc<T>* W,
                     const Acc<T>* B, Acc<T>* mean_out, Acc<T>* rstd_out, bool stream) {
  using V = Vec<T>;
  using A = Acc<T>;
  const T* s = residual ? sum : x;
  A mean = 0, squares;
  if (kCenter || residual) {
    // The sum is read back as stored: statistics are those of the tensor that backward will see.
    A total = sum_vectors<T>(
        C, [&](int64_t i, int n) __attribute__((always_inline)) {
          V v = load_n(x + i, n);
          if (residual) {
            store_n(sum + i, v + load_n(residual + i, n), n);
            v = load_n(sum + i, n);
          }
          return v;
        });
    if (kCenter) mean = total / A(C);
  }
  V m(mean);
  squares = sum_vectors<T>(
      C, [&](int64_t i, int n) __attribute__((always_inline)) {
        __builtin_prefetch(x + C + i);  // the next row comes from memory while this one is computed from the cache
        V d = load_n(s + i, n, mean) - m;
        return d * d;
      });
  A rstd = A(1) / SF_ISA::sqrt(squares / A(C) + eps);
  if (mean_out) *mean_out = mean;
  if (rstd_out) *rstd_out = rstd;
  V r(rstd);
  if constexpr (sizeof(T) == 4) {
    if (stream) {
      each_vector<T>(
          C, [&](int64_t i, int) __attribute__((always_inline)) {
            store_stream(y + i, fma((load(s + i) - m) * r, load(W + i), load(B + i)));
          });
      return;
    }
  }
  each_vector<T>(
      C, [&](int64_t i, int n) __attribute__((always_inline)) {
        store_n(y + i, fma((load_n(s + i, n) - m) * r, load_n(W + i, n), load_n(B + i, n)), n);
      });
}

// Args is LayerNormForward or RmsNormForward; bias and mean are undefined views for the latter.
template <class T, bool kCenter, class Args>
static void norm_forward(const Args& a, const TensorView& bias, const TensorView& mean) {
  using A = Acc<T>;
  int64_t C = a.cols, R = C > 0 ? a.x.numel() / C : 0;
  int64_t per_batch = a.scale || a.shift ? a.rows_per_batch : R;
  A* shared = static_cast<A*>(scratch(size_t(2 * C) * sizeof(A), 0));
  const A* weight_row = a.weight ? converted<A>(a.weight, C, A(1), shared) : nullptr;
  const A* bias_row = bias ? converted<A>(bias, C, A(0), shared + C) : nullptr;
  bool stream = C % kVec<T> == 0 && streams(a.x.data, a.y.data, R * C * int64_t(sizeof(T)));
  parallel_for(R, row_grain(C), [&](int64_t begin, int64_t end) {
    A* own = static_cast<A*>(scratch(size_t(3 * C) * sizeof(A), 1));
    FoldedRows<A> folded{weight_row, bias_row, a.scale, a.shift, C, own, own + C, own + 2 * C};
    int64_t batch = -1;
    for (int64_t r = begin; r < end; ++r) {
      if (r / per_batch != batch) folded.fold(batch = r / per_batch);
      norm_row<T, kCenter>(
          a.x.template as<const T>() + r * C, a.residual ? a.residual.template as<const T>() + r * C : nullptr,
          a.residual ? a.sum.template as<T>() + r * C : nullptr, a.y.template as<T>() + r * C, C, A(a.eps), folded.W,
          folded.B, mean ? mean.as<A>() + r : nullptr, a.rstd ? a.rstd.template as<A>() + r : nullptr, stream);
    }
    if (stream) stream_fence();
  });
}

// With g = dy W and n = (x - mean) rstd:  dx = rstd (g - sum(g) / C - n sum(g n) / C) + dsum, no sum(g) for rms_norm.
// Adds dy n and dy to the column sums of this batch.
template <class T, bool kCenter>
static void norm_row_backward(const T* x, const T* dy, const T* dsum, T* dx, int64_t C, Acc<T> mean, Acc<T> rstd,
                              const Acc<T>* W, Acc<T>* dyn, Acc<T>* dys) {
  using V = Vec<T>;
  using A = Acc<T>;
  constexpr int L = kVec<T>;
  V m(mean), r(rstd), sg(0.f), sgn(0.f), sg2(0.f), sgn2(0.f);
  auto step = [&](int64_t i, int n, V& s0, V& s1) __attribute__((always_inline)) {
    V d = load_n(dy + i, n), hat = (load_n(x + i, n) - m) * r, g = d * load_n(W + i, n);  // g is 0 past n
    if (kCenter) s0 += g;
    s1 = fma(g, hat, s1);
    if (dyn) {
      store_n(dyn + i, fma(d, hat, load_n(dyn + i, n)), n);
      store_n(dys + i, load_n(dys + i, n) + d, n);
    }
  };
  int64_t i = 0;
  for (; i + 2 * L <= C; i += 2 * L) {
    step(i, L, sg, sgn);
    step(i + L, L, sg2, sgn2);
  }
  for (; i + L <= C; i += L) step(i, L, sg, sgn);
  if (L > 1 && i < C) step(i, int(C - i), sg, sgn);
  V mean_g(reduce_add(sg + sg2) / A(C)), mean_gn(reduce_add(sgn + sgn2) / A(C));
  each_vector<T>(
      C, [&](int64_t i, int n) __attribute__((always_inline)) {
        V hat = (load_n(x + i, n) - m) * r, g = load_n(dy + i, n) * load_n(W + i, n);
        V d = (kCenter ? g - mean_g - hat * mean_gn : g - hat * mean_gn) * r;
        if (dsum) d += load_n(dsum + i, n);
        store_n(dx + i, d, n);
      });
}

// Rows are cut into units of at most `rows` within a batch, about 64 in all; each unit has its own column sums.
struct RowUnits {
  int64_t rows, per_batch, batches, count;  // count units, `per_batch` of them in each batch
};
SF_INLINE RowUnits row_units(int64_t R, int64_t rows_per_batch) {
  RowUnits u;
  u.batches = R / rows_per_batch;
  int64_t want = u.batches >= 64 ? 1 : 64 / u.batches;
  u.rows = (rows_per_batch + want - 1) / want;
  if (u.rows < 16) u.rows = rows_per_batch < 16 ? rows_per_batch : 16;
  u.per_batch = (rows_per_batch + u.rows - 1) / u.rows;
  u.count = u.batches * u.per_batch;
  return u;
}

template <class T, bool kCenter, class Args>
static void norm_backward(const Args& a, const TensorView& bias, const TensorView& mean, const TensorView& dbias) {
  using A = Acc<T>;
  int64_t C = a.cols, R = C > 0 ? a.x.numel() / C : 0;
  bool columns = a.dweight || dbias || a.dscale || a.dshift;
  if (R == 0) {  // the sums of no rows; B empty batches cannot be
    const A zero = 0;
    for (int64_t c = 0; c < C; ++c) {
      if (a.dweight) write_converted<A>(a.dweight, c, c + 1, &zero);
      if (dbias) write_converted<A>(dbias, c, c + 1, &zero);
    }
    return;
  }
  bool batched = a.scale || a.dscale || a.dshift;
  int64_t rows_per_batch = batched ? a.rows_per_batch : R;
  RowUnits u = row_units(R, rows_per_batch);
  A* shared = static_cast<A*>(scratch(size_t(2 * C + (columns ? u.count * 2 * C : 0)) * sizeof(A), 0));
  A* partial = columns ? shared + 2 * C : nullptr;  // [unit][dy n, dy][C]
  const A* weight_row = a.weight ? converted<A>(a.weight, C, A(1), shared) : nullptr;
  const A* bias_row = bias ? converted<A>(bias, C, A(0), shared + C) : nullptr;
  int64_t grain = (row_grain(C) + u.rows - 1) / u.rows;
  parallel_for(u.count, grain, [&](int64_t begin, int64_t end) {
    A* own = static_cast<A*>(scratch(size_t(3 * C) * sizeof(A), 1));
    FoldedRows<A> folded{weight_row, nullptr, a.scale, TensorView(), C, own, own + C, own + 2 * C};
    int64_t batch = -1;
    for (int64_t k = begin; k < end; ++k) {
      if (k / u.per_batch != batch) folded.fold(batch = k / u.per_batch);
      A *dyn = partial ? partial + k * 2 * C : nullptr, *dys = partial ? dyn + C : nullptr;
      if (partial)
        for (int64_t c = 0; c < 2 * C; ++c) dyn[c] = 0;
      int64_t first = batch * rows_per_batch + k % u.per_batch * u.rows, last = first + u.rows;
      if (last > (batch + 1) * rows_per_batch) last = (batch + 1) * rows_per_batch;
      for (int64_t r = first; r < last; ++r)
        norm_row_backward<T, kCenter>(a.x.template as<const T>() + r * C, a.dy.template as<const T>() + r * C,
                                      a.dsum ? a.dsum.template as<const T>() + r * C : nullptr,
                                      a.dx.template as<T>() + r * C, C, kCenter ? mean.as<const A>()[r] : A(0),
                                      a.rstd.template as<const A>()[r], folded.W, dyn, dys);
    }
  });
  if (!columns) return;
  // Per column: dshift = sum dy, dscale = weight sum(dy n) + bias sum dy, per batch; dweight and dbias over batches.
  parallel_for(C, row_grain(2 * u.count), [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlock = 64;
    for (int64_t c0 = begin; c0 < end; c0 += kBlock) {
      int64_t w = end - c0 < kBlock ? end - c0 : kBlock;
      A sum_w[kBlock] = {}, sum_b[kBlock] = {}, gain_row[kBlock], out[kBlock];
      for (int64_t b = 0; b < u.batches; ++b) {
        A n[kBlock] = {}, s[kBlock] = {};
        for (int64_t k = b * u.per_batch; k < (b + 1) * u.per_batch; ++k)
          for (int64_t c = 0; c < w; ++c) {
            n[c] += partial[k * 2 * C + c0 + c];
            s[c] += partial[k * 2 * C + C + c0 + c];
          }
        const A* gain = nullptr;
        if (a.scale) {
          TensorView part = a.scale;
          part.data =
              a.scale.template as<char>() + c0 * a.scale.strides[a.scale.ndim - 1] * int64_t(size_of(a.scale.dtype));
          gain = FoldedRows<A>::batch_row(part, b, w, gain_row);
        }
        for (int64_t c = 0; c < w; ++c) {
          A f = gain ? A(1) + gain[c] : A(1);
          sum_w[c] += f * n[c];
          sum_b[c] += f * s[c];
        }
        auto batch_of = [&](const TensorView& v) __attribute__((always_inline)) {
          TensorView r = v;
          r.ndim = 1;
          r.strides[0] = v.strides[v.ndim - 1];
          if (v.ndim > 1) r.data = v.as<char>() + b * v.strides[0] * int64_t(size_of(v.dtype));
          return r;
        };
        if (a.dscale) {
          for (int64_t c = 0; c < w; ++c)
            out[c] = (weight_row ? weight_row[c0 + c] : A(1)) * n[c] + (bias_row ? bias_row[c0 + c] * s[c] : A(0));
          write_converted<A>(batch_of(a.dscale), c0, c0 + w, out);
        }
        if (a.dshift) write_converted<A>(batch_of(a.dshift), c0, c0 + w, s);
      }
      if (a.dweight) write_converted<A>(a.dweight, c0, c0 + w, sum_w);
      if (dbias) write_converted<A>(dbias, c0, c0 + w, sum_b);
    }
  });
}

SF_INLINE bool same_rows(const TensorView& v, const TensorView& x) {
  return !v || (v.dtype == x.dtype && v.is_contiguous());
}
SF_INLINE bool any_floating(const TensorView& v) { return !v || computes(v.dtype); }

}  // namespace SF_ISA
}  // namespace sf
