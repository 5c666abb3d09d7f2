// Attention on tensor cores, of 16-bit floats, and of float32 where TF32 is allowed (FlashAttention-2): a block per 16
// M rows of each of its warps goes over the keys, and keeps, per query, the largest score so far and the sum of weights
// relative to it. Scores are in units of log 2, so that a weight is one ex2.
//
// Keys and values each have one tile in shared memory: the values of a tile come while its scores are computed, the
// keys of the next one during softmax and the product with the values. Where queries are too few for the GPU, `parts`
// blocks share the keys of one tile of queries and a second kernel joins what they found; where heads are wider than
// 256, `slices` blocks share the columns of the result and compute the same scores.
#include <algorithm>
#include <optional>

#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/attention/attention_mma.cuh"

namespace sf::cuda {
namespace {

template <class T> struct Forward {
  AttentionShape shape;
  Heads<const T> q, k, v;
  Heads<T> y;
  float* lse;                // may be null
  int tiles, parts, slices;  // of queries, of keys, of columns of y
  // [parts][B Hq Lq][Dv] and [parts][B Hq Lq] where there is more than one part; lse in units of log 2
  float *part_y, *part_lse;
  int64_t rows;  // B Hq Lq
  bool vectors;  // 16-byte moves
};

// Rows per warp (16 M) and keys per tile: twice 16 rows share what is read of keys and values. Each as large as 255
// registers hold without spills.
template <class T, int D> struct ForwardTile {
  static constexpr bool kFloat = sizeof(T) == 4;
  static constexpr int M = D <= (kFloat ? 64 : 128) ? 2 : 1, kColumns = D <= 256 ? D : D / 2;
  static constexpr int kKeys = kFloat ? 32 : D <= 80 || D == 160 || D == 192 || D == 256 ? 64 : D == 96 ? 48 : 32;
  static constexpr int W = D * int(sizeof(T)) / 2, kValueW = kColumns * int(sizeof(T)) / 2;  // of rows in shared memory
  static constexpr bool kKeepQueries = W <= 64;
  static size_t shared(int warps) {
    return size_t(warps * 16 * M + kKeys) * kRowBytes<W> + size_t(kKeys) * kRowBytes<kValueW>;
  }
};

// What a block computes.
struct Work {
  int tile, part, slice, h, b;
};
template <class T> __device__ inline Work work_of(const Forward<T>& f, int block) {
  Work w;
  w.tile = block % f.tiles, block /= f.tiles;
  w.part = block % f.parts, block /= f.parts;
  w.slice = block % f.slices, block /= f.slices;
  w.h = block % f.shape.Hq, w.b = block / f.shape.Hq;
  if (f.shape.causal) w.tile = f.tiles - 1 - w.tile;  // the longest ones first
  return w;
}

template <class T, int D>
__global__ void __launch_bounds__(kMmaThreads, 2) attention_mma(Forward<T> f, PreviousGrid previous) {
  using Tile = ForwardTile<T, D>;
  constexpr int M = Tile::M, kKeys = Tile::kKeys, kColumns = Tile::kColumns, W = Tile::W, kValueW = Tile::kValueW;
  const AttentionShape& s = f.shape;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, g = lane / 4, t = lane % 4,
            N = 16 * M * (int(blockDim.x) / 32);
  const Work w = work_of(f, int(blockIdx.x));
  const int h = w.h, b = w.b, column0 = w.slice * kColumns;
  const int i0 = w.tile * N, queries = s.Lq - i0 < N ? s.Lq - i0 : N, row0 = warp * 16 * M;
  const int end = s.key_end(i0 + queries - 1), key_tiles = (end + kKeys - 1) / kKeys;
  const int first = int(int64_t(key_tiles) * w.part / f.parts), last = int(int64_t(key_tiles) * (w.part + 1) / f.parts);
  const T *k = f.k.at(b, h / s.G, 0), *v = f.v.at(b, h / s.G, 0) + column0;
  const int value_width = s.Dv - column0;

  const SharedAddress queries_at = shared_address(dynamic_shared()),
                      keys_at = queries_at + SharedAddress(N * kRowBytes<W>),
                      values_at = keys_at + SharedAddress(kKeys * kRowBytes<W>);
  auto exist = [&](int j0) { return s.Lk - j0 < kKeys ? s.Lk - j0 : kKeys; };
  previous.wait();
  if (first < last) {
    bring_rows<W>(queries_at, f.q.at(b, h, i0), f.q.row, N, queries, s.D, f.vectors);
    bring_rows<W>(keys_at, k + first * kKeys * f.k.row, f.k.row, kKeys, exist(first * kKeys), s.D, f.vectors);
    commit_copies();
  }

  const float scale = s.scale * kLog2E;
  const SharedAddress own = queries_at + SharedAddress(row0 * kRowBytes<W>);
  std::conditional_t<Tile::kKeepQueries, KeptRows<W, M>, SharedRows<W, M>> q;
  float out[M][kColumns / 8][4] = {}, top[M][2], total[M][2] = {};
#pragma unroll
  for (int m = 0; m < M; ++m) top[m][0] = top[m][1] = -INFINITY;

  for (int tile_of_keys = first; tile_of_keys < last; ++tile_of_keys) {
    const int j0 = tile_of_keys * kKeys;
    wait_for_copies<0>();
    __syncthreads();  // keys are there, the last values no longer used
    bring_rows<kValueW>(values_at, v + j0 * f.v.row, f.v.row, kKeys, exist(j0), value_width, f.vectors);
    commit_copies();
    if (!Tile::kKeepQueries || tile_of_keys == first) q.load(lane_in_a<W>(own));
    float p[M][kKeys / 8][4];
    row_products_mma<T, W>(p, q, lane_in_b<W>(keys_at));
    wait_for_copies<0>();
    __syncthreads();  // values are there, the keys no longer used
    if (tile_of_keys + 1 < last) {
      bring_rows<W>(keys_at, k + (j0 + kKeys) * f.k.row, f.k.row, kKeys, exist(j0 + kKeys), s.D, f.vectors);
      commit_copies();
    }

    // A tile that every query of the warp sees whole is scaled within the exponent;
    // in the others scores that do not count become -inf.
    float unit = scale;
    if (s.mask.data || j0 + kKeys > s.Lk || (s.causal && j0 + kKeys - 1 > i0 + row0) || scale <= 0) {
      unit = 1;
      masked_scores(p, s, b, h, [&](int m, int n, int e) {
        return QueryAndKey{i0 + row0 + 16 * m + g + e / 2 * 8, j0 + 8 * n + 2 * t + e % 2};
      });
    }
    float shrink[M][2];
    const bool shrinks = weights_mma(p, top, total, shrink, unit);
    if (__any_sync(~0u, shrinks)) {  // seldom after the first tiles
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int c = 0; c < kColumns / 8; ++c)
#pragma unroll
          for (int e = 0; e < 4; ++e) out[m][c][e] *= shrink[m][e / 2];
    }
    if constexpr (Tile::kFloat) add_products_tf32<kValueW>(out, p, dynamic_shared() + (values_at - queries_at));
    else add_products_mma<T, kValueW>(out, p, lane_in_a<kValueW>(values_at));
  }

  const Work done = work_of(f, computed_again(int(blockIdx.x)));
  const int64_t head_rows = (int64_t(done.b) * s.Hq + done.h) * s.Lq + i0 + row0;
  const int width_left = s.Dv - done.slice * kColumns;
  float factor[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = quad_all(total[m][r], [](float x, float y) { return x + y; });
      factor[m][r] = sum == 0.0f ? 0.0f : 1.0f / sum;
      int row = 16 * m + 8 * r + g;
      if (t != 0 || done.slice != 0 || row0 + row >= queries) continue;
      if (f.parts > 1)
        f.part_lse[done.part * f.rows + head_rows + row] = sum == 0.0f ? -INFINITY : top[m][r] + log2f(sum);
      else if (f.lse) f.lse[head_rows + row] = sum == 0.0f ? 0.0f : top[m][r] * kLn2 + logf(sum);
    }
  if (f.parts == 1) {
    // Queries of a warp are read by that warp alone, so that its rows of shared memory are free.
    store_rows_mma<T, W>(out, factor, own, f.y.at(done.b, done.h, i0 + row0) + done.slice * kColumns, f.y.row,
                         queries - row0, width_left < kColumns ? width_left : kColumns, f.vectors);
    return;
  }
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int c = 0; c < kColumns / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int row = 16 * m + e / 2 * 8 + g, col = 8 * c + 2 * t + e % 2;
        if (row0 + row < queries && col < width_left)
          f.part_y[(done.part * f.rows + head_rows + row) * s.Dv + done.slice * kColumns + col] =
              out[m][c][e] * factor[m][e / 2];
      }
}

// A warp per query: the parts' results, weighted by their share of the sum of weights.
template <class T> __global__ void __launch_bounds__(kThreads) join_parts(Forward<T> f, PreviousGrid previous) {
  int64_t row = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  previous.wait();
  if (row >= f.rows) return;
  const AttentionShape& s = f.shape;
  float top = -INFINITY, sum = 0;
  for (int p = 0; p < f.parts; ++p) top = fmaxf(top, f.part_lse[p * f.rows + row]);
  float shift = top == -INFINITY ? 0.0f : top;
  for (int p = 0; p < f.parts; ++p) sum += exp2_fast(f.part_lse[p * f.rows + row] - shift);
  float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
  T* y = f.y.at(row / s.Lq / s.Hq, row / s.Lq % s.Hq, row % s.Lq);
  for (int c = int(threadIdx.x) % 32; c < s.Dv; c += 32) {
    float value = 0;
    for (int p = 0; p < f.parts; ++p)
      value += exp2_fast(f.part_lse[p * f.rows + row] - shift) * f.part_y[(p * f.rows + row) * s.Dv + c];
    y[c] = to_storage<T>(value * factor);
  }
  if (f.lse && threadIdx.x % 32 == 0) f.lse[row] = sum == 0.0f ? 0.0f : top * kLn2 + logf(sum);
}

void forward(const AttentionForward& a) {
  if (a.y.numel() == 0) return;
  choose_width(a.q, a.v, [&](auto type, auto width) {
    using T = decltype(type);
    using Tile = ForwardTile<T, width()>;
    Device device = a.q.device;
    Forward<T> f{};
    f.shape = AttentionShape(a), f.q = Heads<const T>(a.q), f.k = Heads<const T>(a.k), f.v = Heads<const T>(a.v),
    f.y = Heads<T>(a.y);
    f.lse = a.lse.defined() ? a.lse.as<float>() : nullptr;
    f.rows = a.q.sizes[0] * a.q.sizes[1] * a.q.sizes[2];
    f.vectors = moves_vectors(a.q) && moves_vectors(a.k) && moves_vectors(a.v) && moves_vectors(a.y);
    f.slices = f.shape.Dv > Tile::kColumns ? width() / Tile::kColumns : 1;
    const int64_t heads = a.q.sizes[0] * a.q.sizes[1] * f.slices, processors = multiprocessors(device);
    const size_t most = most_shared(device);
    auto tiles = [&](int warps) { return (f.shape.Lq + 16 * Tile::M * warps - 1) / (16 * Tile::M * warps); };
    int warps = kMmaThreads / 32;
    // Smaller blocks where queries do not fill one, or blocks not the GPU twice.
    while (warps > 1 && (Tile::shared(warps) > most || f.shape.Lq <= 8 * Tile::M * warps ||
                         (warps > 2 && heads * tiles(warps) < 2 * processors)))
      warps /= 2;
    f.tiles = tiles(warps);
    const int64_t blocks = heads * f.tiles, key_tiles = (f.shape.Lk + Tile::kKeys - 1) / Tile::kKeys;
    // Parts of two tiles of keys at least, so that what they save outweighs joining them.
    f.parts = blocks * 2 > processors ? 1 : int(std::max<int64_t>(1, std::min(key_tiles / 2, 2 * processors / blocks)));
    std::optional<Scratch> parts;
    if (f.parts > 1) {
      parts.emplace(device, size_t(f.parts) * size_t(f.rows) * size_t(f.shape.Dv + 1) * sizeof(float));
      f.part_lse = parts->as<float>();
      f.part_y = f.part_lse + f.parts * f.rows;
    }
    launch("attention", device, {unsigned(blocks * f.parts), unsigned(32 * warps), Tile::shared(warps)},
           attention_mma<T, width()>, f);
    if (f.parts > 1)
      launch("attention", device, unsigned((f.rows + kThreads / 32 - 1) / (kThreads / 32)), join_parts<T>, f);
  });
}
bool supports(const AttentionForward& a) {
  bool tf32 = a.q.dtype == kFloat32 && matmul_allow_tf32() && a.q.sizes[3] <= 256 && a.v.sizes[3] <= 256;
  return attention_supported(a) && (is_reduced(a.q.dtype) || tf32);
}

SF_KERNEL(attention_forward, DeviceType::CUDA, "mma", 1, forward, supports)

}  // namespace
}  // namespace sf::cuda
