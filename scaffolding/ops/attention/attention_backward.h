// What the CPU's kernels of backward attention share: tensors, statistics of a row, dmask, dq of several tasks.
// Included only by attention_backward.cpu.cpp and attention_backward.amx.cpp; everything lives in namespace sf::SF_ISA.
#pragma once
#include "scaffolding/core/parallel.h"
#include "scaffolding/core/scratch.h"
#include "scaffolding/ops/attention/attention_problem.h"

namespace sf {
namespace SF_ISA {

template <class T> struct BackwardTensors {
  Heads<const T> q, k, v, y, dy;
  Heads<T> dq, dk, dv;
  const float* lse;
  float* dmask;
  float scale;
  SF_INLINE explicit BackwardTensors(const AttentionBackward& a)
      : q(a.q),
        k(a.k),
        v(a.v),
        y(a.y),
        dy(a.dy),
        dq(a.dq),
        dk(a.dk),
        dv(a.dv),
        lse(a.lse.as<float>()),
        dmask(a.dmask.defined() ? a.dmask.as<float>() : nullptr),
        scale(float(a.scale)) {}
};

template <int N> struct RowStatistics {
  alignas(64) float minus_lse[N];  // in powers of two
  alignas(64) float delta[N];
};
// Lanes without a row: 2^-infinity, no weight, and no gradient.
template <class T, int N>
SF_INLINE void load_statistics(const Problem& p, const BackwardTensors<T>& t, const QueryBlockOf<N>& x,
                               const T* const* y, const T* const* dy, RowStatistics<N>& out) {
  for (int r = 0; r < N; ++r) {
    if (r >= x.count) {
      out.minus_lse[r] = kLowest, out.delta[r] = 0;
      continue;
    }
    float lse = t.lse[(x.b * p.Hq + x.head(p, r)) * p.Lq + x.query(p, r)] * kLog2e;
    out.minus_lse[r] = lse < kLowest ? -kLowest : -lse;
    vf sum(0.0f);
    for (int64_t d = 0; d < p.Dv; d += kLanes) {
      int n = int(smaller(kLanes, p.Dv - d));
      sum = fma(load_n(y[r] + d, n), load_n(dy[r] + d, n), sum);
    }
    out.delta[r] = reduce_add(sum);
  }
}

// dmask of one block: ds[kn][N] transposed into rows of the full score; zero when ds is null.
template <int N>
SF_INLINE void write_dmask(const Problem& p, const QueryBlockOf<N>& block, const float* ds, int64_t k0, int64_t kn,
                           float* dmask) {
  for (int g = 0; g < block.count; g += kLanes)
    for (int64_t k = 0; k < kn; k += kLanes) {
      int n = int(smaller(kLanes, kn - k));
      vf_raw r[kLanes];
      for (int i = 0; i < kLanes; ++i) r[i] = ds && i < n ? load(ds + (k + i) * N + g).v : vf_raw{};
      transpose(r);
      for (int i = 0; i < kLanes && g + i < block.count; ++i)
        store_n(dmask + ((block.b * p.Hq + block.head(p, g + i)) * p.Lq + block.query(p, g + i)) * p.Lk + k0 + k, r[i],
                n);
    }
}

template <class T>
SF_INLINE void write_rows(const Heads<T>& out, int64_t b, int64_t h, const float* sum, int64_t first, int64_t count,
                          int64_t length, int64_t width, float scale) {
  for (int64_t i = 0; i < count; ++i) {
    T* row = out.at(b, h, first + i);
    for (int64_t d = 0; d < length; d += kLanes)
      store_n(row + d, load(sum + i * width + d) * vf(scale), int(smaller(kLanes, length - d)));
  }
}

// Tasks per head. More than one costs a partial dq each, so only until the threads share evenly or nearly so.
SF_INLINE int64_t tasks_per_head(int64_t heads, int64_t tiles, int64_t threads) {
  int64_t shares = 1;
  while (shares < tiles && (heads * shares) % threads != 0 && heads * shares < 4 * threads) ++shares;
  return shares;
}

// dq = the sum of the tasks' partial[heads * shares][rows][width].
template <class T>
SF_INLINE void sum_partial_dq(const Problem& p, const Heads<T>& dq, const float* partial, int64_t shares,
                              int64_t width) {
  const int64_t floats = p.rows() * width;
  parallel_for(p.B * p.Hkv * p.rows(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t bh = i / p.rows(), row = i % p.rows();
      T* out = dq.at(bh / p.Hkv, bh % p.Hkv * p.G + row / p.Lq, row % p.Lq);
      const float* in = partial + bh * shares * floats + row * width;
      for (int64_t d = 0; d < p.D; d += kLanes) {
        int n = int(smaller(kLanes, p.D - d));
        vf sum(0.0f);
        for (int64_t share = 0; share < shares; ++share) sum += load_n(in + share * floats + d, n);
        store_n(out + d, sum, n);
      }
    }
  });
}

SF_INLINE bool supports_gradients(const AttentionBackward& a) {
  return supports_inputs(a) && a.dy.dtype == a.q.dtype && rows_are_dense(a.y) && rows_are_dense(a.dy) &&
         rows_are_dense(a.dq) && rows_are_dense(a.dk) && rows_are_dense(a.dv);
}

}  // namespace SF_ISA
}  // namespace sf
