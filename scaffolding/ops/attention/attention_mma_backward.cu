// Gradients of attention of 16-bit floats on tensor cores: the formulas and the two kernels of attention_backward.cu,
// with tiles as in attention_mma.cuh. Products whose rows are the block's own are computed with them first (scores of
// queries by keys for dq, of keys by queries for dk and dv), so that p and ds are first operands where they lie. Sums
// have one order: the same input gives the same bits.
#include <algorithm>
#include <optional>

#include "scaffolding/ops/attention/attention_gradient.cuh"
#include "scaffolding/ops/attention/attention_mma.cuh"

namespace sf::cuda {
namespace {

// Rows per warp (16 M) and rows per tile of the other side; stages: tiles of it in shared memory, so that the next one
// comes while one is used.
template <int W> struct QueryTile {
  static constexpr int M = W <= 64 ? 2 : 1, kOthers = 32, kStages = W <= 128 ? 2 : 1, kColumns = W <= 256 ? W : W / 2;
  static size_t shared(int warps) { return size_t(2) * size_t(warps * 16 * M + kStages * kOthers) * kRowBytes<W>; }
};
template <int W> struct KeyTile {
  static constexpr int M = W <= 48 ? 2 : 1, kOthers = 32, kStages = W <= 128 ? 2 : 1,
                       kColumns = W <= 160   ? W
                                  : W <= 256 ? W / 2
                                             : W / 4;
  static size_t shared(int warps) { return size_t(2) * size_t(warps * 16 * M + kStages * kOthers) * kRowBytes<W>; }
};

// bring(i, stage) starts the copies of the i-th tile to that place in shared memory, use(i, stage) computes with it.
// What was brought before is there too.
template <int kStages, class Bring, class Use>
__device__ void each_tile(int first, int last, const Bring& bring, const Use& use) {
  if (first < last) bring(first, 0);
  commit_copies();
  for (int i = first; i < last; ++i) {
    int stage = (i - first) % kStages;
    wait_for_copies<0>();
    __syncthreads();  // the i-th is there, and with two stages nobody uses the one before any more
    if (kStages == 2 && i + 1 < last) bring(i + 1, (stage + 1) % kStages), commit_copies();
    use(i, stage);
    if (kStages == 1 && i + 1 < last) {
      __syncthreads();
      bring(i + 1, 0);
      commit_copies();
    }
  }
  wait_for_copies<0>();
  __syncthreads();  // where there was no tile, nobody has waited for the block's own rows
}

template <class T> struct Gradients {
  Backward<T> g;
  int tiles, slices;  // of the block's own rows, of columns of the results
  bool vectors;
};

template <class T, int W>
__global__ void __launch_bounds__(kMmaThreads, 2) query_gradients_mma(Gradients<T> a, PreviousGrid previous) {
  using Tile = QueryTile<W>;
  constexpr int M = Tile::M, kOthers = Tile::kOthers, kColumns = Tile::kColumns;
  const Backward<T>& g = a.g;
  const AttentionShape& s = g.shape;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, group = lane / 4, t = lane % 4,
            N = 16 * M * (int(blockDim.x) / 32);
  int x = int(blockIdx.x), tile = x % a.tiles;
  x /= a.tiles;
  const int column0 = x % a.slices * kColumns;
  x /= a.slices;
  const int h = x % s.Hq, b = x / s.Hq;
  if (s.causal) tile = a.tiles - 1 - tile;  // the longest ones first
  const int i0 = tile * N, queries = s.Lq - i0 < N ? s.Lq - i0 : N, row0 = warp * 16 * M;
  const int end = g.dmask ? s.Lk : s.key_end(i0 + queries - 1);
  const T *k = g.k.at(b, h / s.G, 0), *v = g.v.at(b, h / s.G, 0);

  constexpr SharedAddress kTileBytes = kOthers * kRowBytes<W>;
  const SharedAddress q_at = shared_address(dynamic_shared()), dy_at = q_at + SharedAddress(N * kRowBytes<W>),
                      k_at = dy_at + SharedAddress(N * kRowBytes<W>), v_at = k_at + Tile::kStages * kTileBytes;
  previous.wait();
  bring_rows<W>(q_at, g.q.at(b, h, i0), g.q.row, N, queries, s.D, a.vectors);
  bring_rows<W>(dy_at, g.dy.at(b, h, i0), g.dy.row, N, queries, s.Dv, a.vectors);

  const int64_t rows = (int64_t(b) * s.Hq + h) * s.Lq + i0 + row0;
  float lse[M][2], delta[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int row = 16 * m + 8 * r + group;
      bool exists = row0 + row < queries;
      lse[m][r] = exists ? g.lse[rows + row] * kLog2E : 0.0f, delta[m][r] = exists ? g.delta[rows + row] : 0.0f;
    }
  const float scale = s.scale * kLog2E;
  SharedRows<W, M> q{lane_in_a<W>(q_at + SharedAddress(row0 * kRowBytes<W>))},
      dy{lane_in_a<W>(dy_at + SharedAddress(row0 * kRowBytes<W>))};
  float dq[M][kColumns / 8][4] = {};
  each_tile<Tile::kStages>(
      0, (end + kOthers - 1) / kOthers,
      [&](int i, int stage) {
        int exist = s.Lk - i * kOthers < kOthers ? s.Lk - i * kOthers : kOthers;
        bring_rows<W>(k_at + stage * kTileBytes, k + int64_t(i) * kOthers * g.k.row, g.k.row, kOthers, exist, s.D,
                      a.vectors);
        bring_rows<W>(v_at + stage * kTileBytes, v + int64_t(i) * kOthers * g.v.row, g.v.row, kOthers, exist, s.Dv,
                      a.vectors);
      },
      [&](int tile_of_keys, int stage) {
        const int j0 = tile_of_keys * kOthers;
        float p[M][kOthers / 8][4], ds[M][kOthers / 8][4];
        row_products_mma<T, W>(p, q, lane_in_b<W>(k_at + stage * kTileBytes));
        row_products_mma<T, W>(ds, dy, lane_in_b<W>(v_at + stage * kTileBytes));
        float unit = scale;  // as in forward
        if (s.mask.data || j0 + kOthers > s.Lk || (s.causal && j0 + kOthers - 1 > i0 + row0)) {
          unit = 1;
          masked_scores(p, s, b, h, [&](int m, int n, int e) {
            return QueryAndKey{i0 + row0 + 16 * m + group + e / 2 * 8, j0 + 8 * n + 2 * t + e % 2};
          });
        }
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
          for (int n = 0; n < kOthers / 8; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              ds[m][n][e] = exp2_fast(p[m][n][e] * unit - lse[m][e / 2]) * (ds[m][n][e] - delta[m][e / 2]);
        if (g.dmask && column0 == 0) {
#pragma unroll
          for (int m = 0; m < M; ++m)
#pragma unroll
            for (int n = 0; n < kOthers / 8; ++n)
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                int row = 16 * m + e / 2 * 8 + group, j = j0 + 8 * n + 2 * t + e % 2;
                if (row0 + row < queries && j < s.Lk) g.dmask[(rows + row) * s.Lk + j] = ds[m][n][e];
              }
        }
        add_products_mma<T, W>(dq, ds, lane_in_a<W>(k_at + stage * kTileBytes) + SharedAddress(2 * column0));
      });
  if (!g.dq.data) return;
  float factor[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m) factor[m][0] = factor[m][1] = s.scale;
  int width = s.D - column0;
  store_rows_mma<T, W>(dq, factor, q_at + SharedAddress(row0 * kRowBytes<W>), g.dq.at(b, h, i0 + row0) + column0,
                       g.dq.row, queries - row0, width < kColumns ? width : kColumns, a.vectors);
}

template <class T, int W>
__global__ void __launch_bounds__(kMmaThreads, 2) key_gradients_mma(Gradients<T> a, PreviousGrid previous) {
  using Tile = KeyTile<W>;
  constexpr int M = Tile::M, kOthers = Tile::kOthers, kColumns = Tile::kColumns;
  const Backward<T>& g = a.g;
  const AttentionShape& s = g.shape;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, group = lane / 4, t = lane % 4,
            N = 16 * M * (int(blockDim.x) / 32);
  int x = int(blockIdx.x);
  const int tile = x % a.tiles;
  x /= a.tiles;
  const int column0 = x % a.slices * kColumns;
  x /= a.slices;
  const int heads = s.Hq / s.G, hk = x % heads, b = x / heads;
  const int j0 = tile * N, keys = s.Lk - j0 < N ? s.Lk - j0 : N, row0 = warp * 16 * M;

  constexpr SharedAddress kTileBytes = kOthers * kRowBytes<W>;
  const SharedAddress k_at = shared_address(dynamic_shared()), v_at = k_at + SharedAddress(N * kRowBytes<W>),
                      q_at = v_at + SharedAddress(N * kRowBytes<W>), dy_at = q_at + Tile::kStages * kTileBytes;
  previous.wait();
  bring_rows<W>(k_at, g.k.at(b, hk, j0), g.k.row, N, keys, s.D, a.vectors);
  bring_rows<W>(v_at, g.v.at(b, hk, j0), g.v.row, N, keys, s.Dv, a.vectors);

  const float scale = s.scale * kLog2E;
  SharedRows<W, M> k{lane_in_a<W>(k_at + SharedAddress(row0 * kRowBytes<W>))},
      v{lane_in_a<W>(v_at + SharedAddress(row0 * kRowBytes<W>))};
  float dk[M][kColumns / 8][4] = {}, dv[M][kColumns / 8][4] = {};
  // Tiles of queries of all heads that share these keys, one after the other. With causal,
  // earlier queries see none of them.
  const int first = s.causal ? j0 / kOthers : 0, per_head = (s.Lq + kOthers - 1) / kOthers - first;
  each_tile<Tile::kStages>(
      0, per_head > 0 ? per_head * s.G : 0,
      [&](int i, int stage) {
        int h = hk * s.G + i / per_head, i0 = (first + i % per_head) * kOthers,
            exist = s.Lq - i0 < kOthers ? s.Lq - i0 : kOthers;
        bring_rows<W>(q_at + stage * kTileBytes, g.q.at(b, h, i0), g.q.row, kOthers, exist, s.D, a.vectors);
        bring_rows<W>(dy_at + stage * kTileBytes, g.dy.at(b, h, i0), g.dy.row, kOthers, exist, s.Dv, a.vectors);
      },
      [&](int i, int stage) {
        const int h = hk * s.G + i / per_head, i0 = (first + i % per_head) * kOthers;
        const int64_t rows = (int64_t(b) * s.Hq + h) * s.Lq;
        float p[M][kOthers / 8][4], ds[M][kOthers / 8][4];
        row_products_mma<T, W>(p, k, lane_in_b<W>(q_at + stage * kTileBytes));
        row_products_mma<T, W>(ds, v, lane_in_b<W>(dy_at + stage * kTileBytes));
        // Queries that do not exist are zeros, and so is what they add. Keys that do not exist have rows of their own.
        float unit = scale;
        if (s.mask.data || (s.causal && j0 + row0 + 16 * M - 1 > i0)) {
          unit = 1;
          masked_scores(p, s, b, h, [&](int m, int n, int e) {
            return QueryAndKey{i0 + 8 * n + 2 * t + e % 2, j0 + row0 + 16 * m + group + e / 2 * 8};
          });
        }
#pragma unroll
        for (int n = 0; n < kOthers / 8; ++n)
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            int query = i0 + 8 * n + 2 * t + c;
            bool exists = query < s.Lq;
            float lse = exists ? g.lse[rows + query] * kLog2E : 0.0f, delta = exists ? g.delta[rows + query] : 0.0f;
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
              for (int e = c; e < 4; e += 2) {
                p[m][n][e] = exp2_fast(p[m][n][e] * unit - lse);
                ds[m][n][e] = p[m][n][e] * (ds[m][n][e] - delta);
              }
          }
        add_products_mma<T, W>(dv, p, lane_in_a<W>(dy_at + stage * kTileBytes) + SharedAddress(2 * column0));
        add_products_mma<T, W>(dk, ds, lane_in_a<W>(q_at + stage * kTileBytes) + SharedAddress(2 * column0));
      });
  float factor[M][2];
  auto store = [&](const float(&x)[M][kColumns / 8][4], float by, SharedAddress stage, const Heads<T>& to, int width) {
    if (!to.data) return;
#pragma unroll
    for (int m = 0; m < M; ++m) factor[m][0] = factor[m][1] = by;
    width -= column0;
    store_rows_mma<T, W>(x, factor, stage + SharedAddress(row0 * kRowBytes<W>), to.at(b, hk, j0 + row0) + column0,
                         to.row, keys - row0, width < kColumns ? width : kColumns, a.vectors);
  };
  store(dk, s.scale, k_at, g.dk, s.D);
  store(dv, 1, v_at, g.dv, s.Dv);
}

// Warps of a block: four, or as many as shared memory is there for and rows to fill.
template <class Tile> int warps_for(int rows, size_t most) {
  int warps = kMmaThreads / 32;
  while (warps > 1 && (Tile::shared(warps) > most || rows <= 8 * Tile::M * warps)) warps /= 2;
  return warps;
}

template <class T, int W> void gradients(const AttentionBackward& a) {
  Device device = a.q.device;
  RowDeltas<T> deltas(a);
  Gradients<T> f{deltas.arguments, 0, 1, true};
  for (const TensorView* t : {&a.q, &a.k, &a.v, &a.dy, &a.dq, &a.dk, &a.dv}) f.vectors = f.vectors && moves_vectors(*t);
  const AttentionShape& s = f.g.shape;
  const size_t most = most_shared(device);
  auto run = [&](auto tile, int rows, int columns, int64_t heads, void (*kernel)(Gradients<T>, PreviousGrid)) {
    using Tile = decltype(tile);
    int warps = warps_for<Tile>(rows, most), n = 16 * Tile::M * warps;
    f.tiles = (rows + n - 1) / n;
    f.slices = std::max(1, (columns + Tile::kColumns - 1) / Tile::kColumns);
    int64_t blocks = int64_t(f.tiles) * f.slices * heads;
    if (blocks > 0)
      launch("attention_backward", device, {unsigned(blocks), unsigned(32 * warps), Tile::shared(warps)}, kernel, f);
  };
  if (deltas.rows > 0 && (f.g.dq.data || f.g.dmask))
    run(QueryTile<W>(), s.Lq, f.g.dq.data ? s.D : 1, a.q.sizes[0] * a.q.sizes[1], query_gradients_mma<T, W>);
  if (f.g.dk.data || f.g.dv.data)
    run(KeyTile<W>(), s.Lk, std::max(s.D, s.Dv), a.k.sizes[0] * a.k.sizes[1], key_gradients_mma<T, W>);
}

void backward(const AttentionBackward& a) {
  choose_width(a.q, a.v, [&](auto type, auto width) {
    if constexpr (sizeof(type) == 2) gradients<decltype(type), width()>(a);  // float32: attention_backward.cu
  });
}
bool supports(const AttentionBackward& a) { return attention_supported(a) && is_reduced(a.q.dtype); }

SF_KERNEL(attention_backward, DeviceType::CUDA, "mma", 1, backward, supports)

}  // namespace
}  // namespace sf::cuda
