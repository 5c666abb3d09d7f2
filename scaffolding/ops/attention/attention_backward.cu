// Gradients of attention on CUDA. Weights are computed again from the logarithm of their sum (FlashAttention, 2022,
// algorithm 4):
//   p = exp(score - lse), dp = dy v^T, ds = p (dp - delta), delta = sum of dy y;  dq = scale ds k, dk = scale ds^T q,
//   dv = p^T dy.
// One kernel goes over the keys for each tile of queries (dq, dmask), another over the queries for each tile of keys
// (dk, dv): the scores are computed twice, but nothing is added by atomics, so that the same input gives the same bits.
// What is missing is said in attention.cu.
#include "scaffolding/ops/attention/attention_gradient.cuh"

namespace sf::cuda {
namespace {

// p and ds of a tile, in the thread's registers: rows are queries i0.., columns keys j0...
template <class T, int R>
__device__ void tile_gradients(float (&p)[R][R], float (&ds)[R][R], AttentionShared<R>& m, const Backward<T>& g, int b,
                               int h, int i0, int queries, int j0, int keys) {
  const AttentionShape& s = g.shape;
  row_products(p, m, g.q.at(b, h, i0), g.q.row, queries, g.k.at(b, h / s.G, j0), g.k.row, keys, s.D);
  row_products(ds, m, g.dy.at(b, h, i0), g.dy.row, queries, g.v.at(b, h / s.G, j0), g.v.row, keys, s.Dv);
#pragma unroll
  for (int i = 0; i < R; ++i) {
    int row = i0 + tile_row() * R + i;
    bool exists = row < s.Lq;
    int64_t at = (int64_t(b) * s.Hq + h) * s.Lq + row;
    float lse = exists ? g.lse[at] : 0.0f, delta = exists ? g.delta[at] : 0.0f;
#pragma unroll
    for (int j = 0; j < R; ++j) {
      int col = j0 + tile_col() + 16 * j;
      p[i][j] = expf(s.score(b, h, row, col, p[i][j]) - lse);
      ds[i][j] = p[i][j] * (ds[i][j] - delta);
      if (g.dmask && exists && col < s.Lk) g.dmask[at * s.Lk + col] = ds[i][j];
    }
  }
}

template <int R> __device__ void share(AttentionShared<R>& m, const float (&x)[R][R]) {
#pragma unroll
  for (int i = 0; i < R; ++i)
#pragma unroll
    for (int j = 0; j < R; ++j) m.p[tile_row() * R + i][tile_col() + 16 * j] = x[i][j];
}

template <class T, int R, int C> __global__ void __launch_bounds__(kThreads) query_gradients(Backward<T> g) {
  constexpr int N = 16 * R;
  __shared__ AttentionShared<R> m;
  const AttentionShape& s = g.shape;
  int i0 = int(blockIdx.x) % g.tiles * N, h = int(blockIdx.x) / g.tiles % s.Hq, b = int(blockIdx.x) / g.tiles / s.Hq;
  int queries = s.Lq - i0 < N ? s.Lq - i0 : N, end = g.dmask ? s.Lk : s.key_end(i0 + queries - 1);
  float dq[R][C] = {}, p[R][R], ds[R][R], factor[R];
  for (int j0 = 0; j0 < end; j0 += N) {
    int keys = s.Lk - j0 < N ? s.Lk - j0 : N;
    tile_gradients(p, ds, m, g, b, h, i0, queries, j0, keys);
    share(m, ds);
    add_weighted_rows<false>(dq, m, g.k.at(b, h / s.G, j0), g.k.row, keys, s.D);
  }
  for (int i = 0; i < R; ++i) factor[i] = s.scale;
  if (g.dq.data) store_rows(dq, factor, g.dq.at(b, h, i0), g.dq.row, queries, s.D);
}

template <class T, int R, int C> __global__ void __launch_bounds__(kThreads) key_gradients(Backward<T> g) {
  constexpr int N = 16 * R;
  __shared__ AttentionShared<R> m;
  const AttentionShape& s = g.shape;
  int heads = s.Hq / s.G, j0 = int(blockIdx.x) % g.tiles * N, hk = int(blockIdx.x) / g.tiles % heads,
      b = int(blockIdx.x) / g.tiles / heads;
  int keys = s.Lk - j0 < N ? s.Lk - j0 : N;
  float dk[R][C] = {}, dv[R][C] = {}, p[R][R], ds[R][R], factor[R];
  g.dmask = nullptr;  // written by the other kernel
  for (int h = hk * s.G; h < (hk + 1) * s.G; ++h)
    for (int i0 = s.causal ? j0 / N * N : 0; i0 < s.Lq; i0 += N) {  // earlier queries see none of these keys
      int queries = s.Lq - i0 < N ? s.Lq - i0 : N;
      tile_gradients(p, ds, m, g, b, h, i0, queries, j0, keys);
      share(m, p);
      add_weighted_rows<true>(dv, m, g.dy.at(b, h, i0), g.dy.row, queries, s.Dv);
      share(m, ds);
      add_weighted_rows<true>(dk, m, g.q.at(b, h, i0), g.q.row, queries, s.D);
    }
  for (int i = 0; i < R; ++i) factor[i] = 1;
  if (g.dv.data) store_rows(dv, factor, g.dv.at(b, hk, j0), g.dv.row, keys, s.Dv);
  for (int i = 0; i < R; ++i) factor[i] = s.scale;
  if (g.dk.data) store_rows(dk, factor, g.dk.at(b, hk, j0), g.dk.row, keys, s.D);
}

void backward(const AttentionBackward& a) {
  choose_attention(a.q, a.v, [&](auto t, auto r, auto c) {
    using T = decltype(t);
    RowDeltas<T> deltas(a);
    Backward<T> g = deltas.arguments;
    int n = 16 * r();
    g.tiles = (g.shape.Lq + n - 1) / n;
    if (deltas.rows > 0 && (g.dq.data || g.dmask))
      launch("attention_backward", a.q.device, unsigned(g.tiles * g.shape.Hq * a.q.sizes[0]),
             query_gradients<T, r(), c()>, g);
    g.tiles = (g.shape.Lk + n - 1) / n;
    int64_t blocks = g.tiles * a.k.sizes[1] * a.q.sizes[0];
    if (blocks > 0 && (g.dk.data || g.dv.data))
      launch("attention_backward", a.q.device, unsigned(blocks), key_gradients<T, r(), c()>, g);
  });
}
bool supports(const AttentionBackward& a) { return attention_supported(a); }

SF_KERNEL(attention_backward, DeviceType::CUDA, "native", 0, backward, supports)

}  // namespace
}  // namespace sf::cuda
