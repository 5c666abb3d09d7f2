// Attention on CUDA without a matrix of scores in memory: a block per tile of queries goes over the keys and keeps, per
// query, the largest score so far and the sum of weights relative to it ("online softmax", Dao et al., FlashAttention,
// 2022, algorithm 1). Sums in float32.
//
// Missing for the hardware's speed: tensor cores (mma.sync m16n8k16 for 16-bit floats; wgmma on 9.0), 16-byte loads,
// loads of the next tile while this one is multiplied (cp.async), keys split among blocks where there are few queries.
// cuDNN's attention would be a provider before this one.
#include "scaffolding/ops/attention/attention_tile.cuh"

namespace sf::cuda {
namespace {

template <class T> struct Forward {
  AttentionShape shape;
  Heads<const T> q, k, v;
  Heads<T> y;
  float* lse;  // may be null
  int tiles;   // of queries
};

template <class T, int R, int C> __global__ void __launch_bounds__(kThreads) attention_tiles(Forward<T> f) {
  constexpr int N = 16 * R;
  __shared__ AttentionShared<R> m;
  const AttentionShape& s = f.shape;
  int i0 = int(blockIdx.x) % f.tiles * N, h = int(blockIdx.x) / f.tiles % s.Hq, b = int(blockIdx.x) / f.tiles / s.Hq;
  int queries = s.Lq - i0 < N ? s.Lq - i0 : N, end = s.key_end(i0 + queries - 1);
  const T* q = f.q.at(b, h, i0);
  float out[R][C] = {}, top[R], total[R] = {};
  for (int i = 0; i < R; ++i) top[i] = -INFINITY;
  for (int j0 = 0; j0 < end; j0 += N) {
    int keys = s.Lk - j0 < N ? s.Lk - j0 : N;
    float p[R][R];
    row_products(p, m, q, f.q.row, queries, f.k.at(b, h / s.G, j0), f.k.row, keys, s.D);
#pragma unroll
    for (int i = 0; i < R; ++i) {
      int row = tile_row() * R + i;
      float highest = top[i];
#pragma unroll
      for (int j = 0; j < R; ++j) {
        p[i][j] = s.score(b, h, i0 + row, j0 + tile_col() + 16 * j, p[i][j]);
        highest = p[i][j] > highest ? p[i][j] : highest;
      }
      highest = row_all(highest, [](float x, float y) { return x > y ? x : y; });
      // Nothing seen so far: any finite shift gives weights of 0.
      float shift = highest == -INFINITY ? 0.0f : highest, factor = expf(top[i] - shift);
      top[i] = highest;
      total[i] *= factor;
#pragma unroll
      for (int j = 0; j < R; ++j) {
        float weight = expf(p[i][j] - shift);
        total[i] += weight;
        m.p[row][tile_col() + 16 * j] = weight;
      }
#pragma unroll
      for (int c = 0; c < C; ++c) out[i][c] *= factor;
    }
    add_weighted_rows<false>(out, m, f.v.at(b, h / s.G, j0), f.v.row, keys, s.Dv);
  }
  float factor[R];
  for (int i = 0; i < R; ++i) {
    float sum = row_all(total[i], [](float x, float y) { return x + y; });
    factor[i] = sum == 0.0f ? 0.0f : 1.0f / sum;
    int row = tile_row() * R + i;
    if (f.lse && tile_col() == 0 && row < queries)
      f.lse[(int64_t(b) * s.Hq + h) * s.Lq + i0 + row] = sum == 0.0f ? 0.0f : top[i] + logf(sum);
  }
  store_rows(out, factor, f.y.at(b, h, i0), f.y.row, queries, s.Dv);
}

void forward(const AttentionForward& a) {
  if (a.y.numel() == 0) return;
  choose_attention(a.q, a.v, [&](auto t, auto r, auto c) {
    using T = decltype(t);
    Forward<T> f{AttentionShape(a),
                 Heads<const T>(a.q),
                 Heads<const T>(a.k),
                 Heads<const T>(a.v),
                 Heads<T>(a.y),
                 a.lse.defined() ? a.lse.as<float>() : nullptr,
                 0};
    f.tiles = (f.shape.Lq + 16 * r() - 1) / (16 * r());
    launch("attention", a.q.device, unsigned(f.tiles * f.shape.Hq * a.q.sizes[0]), attention_tiles<T, r(), c()>, f);
  });
}
bool supports(const AttentionForward& a) { return attention_supported(a); }

SF_KERNEL(attention_forward, DeviceType::CUDA, "native", 0, forward, supports)

}  // namespace
}  // namespace sf::cuda
