// Attention by Hopper's warpgroup instructions (FlashAttention-3, Shah et al., 2024, section 3.2): blocks stay and take
// one tile of queries after the other. One thread of the first warpgroup starts the copies, of queries, keys and values
// each into stages of their own; the other warpgroups each have 64 queries. A warpgroup multiplies the queries with the
// next keys while tensor cores still multiply its last weights with their values, so that the exponentials of one tile
// and the product of the other run at the same time. Weights go from the sums of the one product to the operand of the
// other in registers.
#pragma once
#include "scaffolding/backend/cuda/previous_grid.cuh"
#include "scaffolding/backend/cuda/warpgroup.cuh"
#include "scaffolding/backend/cuda/warpgroup_rows.cuh"
#include "scaffolding/ops/attention/attention_mma.cuh"

namespace sf::cuda {

// Heads are padded with zeros to W columns, a multiple of 16; in shared memory to boxes of 64.
// With a mask there are fewer warpgroups, each with more registers.
template <int W, bool masked> struct WarpgroupAttention {
  static constexpr int kGroups = W <= 80 && !masked ? 3 : 2, kThreads = 128 * (kGroups + 1);
  static constexpr int kQueries = 64 * kGroups, kKeys = W == 80 || W == 160 ? 96 : W <= 128 ? 128 : 64;  // of a tile
  static constexpr int kBoxes = (W + 63) / 64;
  static constexpr int kQueryBox = kQueries * kBoxRowBytes, kKeyBox = kKeys * kBoxRowBytes;
  static constexpr int kQueryBytes = kBoxes * kQueryBox, kKeyBytes = kBoxes * kKeyBox;
  static constexpr int kStages = W <= 64 ? 4 : 2, kQueryStages = W <= 128 ? 2 : 1;
  static constexpr int kBarriers = 2 * (kQueryStages + 2 * kStages), kAlignment = 1024;
  static constexpr int kShared = kAlignment + kQueryStages * kQueryBytes + 2 * kStages * kKeyBytes + 8 * kBarriers;
  static_assert(kShared <= 227 << 10);
};

template <class T> struct AttentionCall {
  AttentionShape shape;
  Heads<T> y;
  float* lse;      // may be null
  int tiles, all;  // of queries: of a head, of all heads
};

// Which queries the i-th tile has, and how many tiles of keys they see.
template <int W, bool masked> struct TileOfHead {
  int b, h, first, key_tiles;
  template <class T> __device__ TileOfHead(const AttentionCall<T>& f, int i) {
    using Tile = WarpgroupAttention<W, masked>;
    int tile = i % f.tiles;
    i /= f.tiles;
    if (f.shape.causal) tile = f.tiles - 1 - tile;  // the longest ones first
    h = i % f.shape.Hq, b = i / f.shape.Hq, first = tile * Tile::kQueries;
    const int last = first + Tile::kQueries < f.shape.Lq ? first + Tile::kQueries - 1 : f.shape.Lq - 1;
    key_tiles = (f.shape.key_end(last) + Tile::kKeys - 1) / Tile::kKeys;
  }
};

// Stages of shared memory that copies fill and warpgroups empty, in turn. A thread's own place in the ring: each counts
// for itself.
template <int kStages, int kBytes> struct Ring {
  SharedAddress memory, barriers;  // of each stage, full and then empty
  int stage = 0;
  unsigned parity = 0;

  static constexpr int kBarrierBytes = 16 * kStages;
  // By one thread: full when a copy's bytes are there, empty when so many have arrived.
  __device__ void init(unsigned readers) const {
    for (int i = 0; i < kStages; ++i) init_barrier(barriers + 16 * i, 1), init_barrier(barriers + 16 * i + 8, readers);
  }
  __device__ SharedAddress place() const { return memory + stage * kBytes; }
  __device__ SharedAddress full() const { return barriers + 16 * stage; }
  __device__ void wait_until_full() const { wait_for_phase(full(), parity); }
  __device__ void begin_to_fill() const {
    wait_for_phase(full() + 8, parity ^ 1);
    arrive_and_expect(full(), kBytes);
  }
  __device__ void release() const { arrive_at(full() + 8, 0); }
  __device__ void go_on() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};
template <int W, bool masked> struct AttentionRings {
  using Tile = WarpgroupAttention<W, masked>;
  Ring<Tile::kQueryStages, Tile::kQueryBytes> queries;
  Ring<Tile::kStages, Tile::kKeyBytes> keys, values;

  __device__ explicit AttentionRings(SharedAddress at) {
    queries.memory = at, keys.memory = at + Tile::kQueryStages * Tile::kQueryBytes;
    values.memory = keys.memory + Tile::kStages * Tile::kKeyBytes;
    queries.barriers = values.memory + Tile::kStages * Tile::kKeyBytes;
    keys.barriers = queries.barriers + queries.kBarrierBytes, values.barriers = keys.barriers + keys.kBarrierBytes;
  }
};

// By one thread: all copies for the block's tiles, as stages become empty.
template <int W, bool masked, class T>
__device__ void copy_heads(const TensorMap& q, const TensorMap& k, const TensorMap& v, const AttentionCall<T>& f,
                           AttentionRings<W, masked> rings) {
  using Tile = WarpgroupAttention<W, masked>;
  auto copy = [](auto& ring, const TensorMap& map, int box_bytes, int b, int h, int row) {
    ring.begin_to_fill();
    for (int box = 0; box < Tile::kBoxes; ++box)
      copy_box_of_head(ring.place() + box * box_bytes, map, b, h, row, 64 * box, ring.full());
    ring.go_on();
  };
  for (int i = int(blockIdx.x); i < f.all; i += int(gridDim.x)) {
    const TileOfHead<W, masked> tile(f, i);
    const int of_keys = tile.h / f.shape.G;
    copy(rings.queries, q, Tile::kQueryBox, tile.b, tile.h, tile.first);
    for (int j = 0; j < tile.key_tiles; ++j) {
      copy(rings.keys, k, Tile::kKeyBox, tile.b, of_keys, j * Tile::kKeys);
      copy(rings.values, v, Tile::kKeyBox, tile.b, of_keys, j * Tile::kKeys);
    }
  }
}

// By a warpgroup: starts the products of its 64 queries with the keys of a stage.
template <class T, int W, bool masked, int n>
__device__ inline void multiply_queries(float (&scores)[n], SharedAddress queries, SharedAddress keys) {
  using Tile = WarpgroupAttention<W, masked>;
#pragma unroll
  for (int c = 0; c < W / 16; ++c)
    multiply_add_rows<T, Tile::kKeys>(scores, rows_along_k(queries + c / 4 * Tile::kQueryBox + c % 4 * 32),
                                      rows_along_k(keys + c / 4 * Tile::kKeyBox + c % 4 * 32), c > 0);
  commit_products();
}
// The same of its weights, each four for 16 keys, with the values of a stage.
template <class T, int W, bool masked, int n, int m>
__device__ inline void add_values(float (&out)[n], const uint32_t (&weights)[m][4], SharedAddress values) {
  using Tile = WarpgroupAttention<W, masked>;
#pragma unroll
  for (int i = 0; i < m; ++i)
    multiply_add_kept<T, W>(out, weights[i], rows_along_n(values + i * 16 * kBoxRowBytes, Tile::kKeyBox));
  commit_products();
}

// By a warpgroup: its 64 queries of every tile.
template <class T, int W, bool masked>
__device__ void attend(int group, const AttentionCall<T>& f, AttentionRings<W, masked> rings) {
  using Tile = WarpgroupAttention<W, masked>;
  constexpr int kKeys = Tile::kKeys;
  const AttentionShape& s = f.shape;
  const int lane = int(threadIdx.x) % 32, t = lane % 4,
            own = 64 * group + int(threadIdx.x) / 32 % 4 * 16 + lane / 4;  // the first of the thread's two queries
  for (int i = int(blockIdx.x); i < f.all; i += int(gridDim.x)) {
    const TileOfHead<W, masked> tile(f, i);
    const int query = tile.first + own, of_warp = query - lane / 4;
    float out[W / 2] = {}, scores[kKeys / 2], top[1][2] = {{-INFINITY, -INFINITY}}, total[1][2] = {}, shrink[1][2];
    uint32_t weights[kKeys / 16][4];
    const SharedAddress queries = rings.queries.place() + group * 64 * kBoxRowBytes;

    // Scores of the keys from j0 on become weights of float32; true if `out` has to shrink.
    auto weigh = [&](int j0) {
      auto& p = reinterpret_cast<float(&)[1][kKeys / 8][4]>(scores);
      float unit = s.scale * kLog2E;
      auto place = [&](int, int n, int e) { return QueryAndKey{query + e / 2 * 8, j0 + 8 * n + 2 * t + e % 2}; };
      if constexpr (masked) {
        scores_with_mask(p, s, tile.b, tile.h, place);
        unit = 1;
      } else if (j0 + kKeys > s.Lk || (s.causal && j0 + kKeys - 1 > of_warp) || unit <= 0) {
        hidden_scores(p, s, place);
        unit = 1;
      }
      return weights_mma(p, top, total, shrink, unit);
    };
    auto round_weights = [&] {
#pragma unroll
      for (int j = 0; j < kKeys / 4; ++j) weights[j / 4][j % 4] = pack<T>(scores[2 * j], scores[2 * j + 1]);
    };
    auto release = [&](const auto& ring) {
      if (lane == 0) ring.release();
    };

    rings.queries.wait_until_full();
    rings.keys.wait_until_full();
    begin_products();
    multiply_queries<T, W, masked>(scores, queries, rings.keys.place());
    wait_for_products<0>(scores);
    release(rings.keys);
    rings.keys.go_on();
    weigh(0);
    round_weights();
    for (int j = 1; j < tile.key_tiles; ++j) {
      rings.keys.wait_until_full();
      rings.values.wait_until_full();
      begin_products();
      multiply_queries<T, W, masked>(scores, queries, rings.keys.place());
      add_values<T, W, masked>(out, weights, rings.values.place());
      wait_for_products<1>(scores);
      release(rings.keys);
      rings.keys.go_on();
      const bool shrinks = weigh(j * kKeys);
      wait_for_products<0>(out);
      release_registers(weights);
      release(rings.values);
      rings.values.go_on();
      if (__any_sync(~0u, shrinks)) {  // seldom after the first tiles
#pragma unroll
        for (int c = 0; c < W / 2; ++c) out[c] *= shrink[0][c / 2 % 2];
      }
      round_weights();
    }
    release(rings.queries);
    rings.queries.go_on();
    rings.values.wait_until_full();
    begin_products();
    add_values<T, W, masked>(out, weights, rings.values.place());
    wait_for_products<0>(out);
    release_registers(weights);
    release(rings.values);
    rings.values.go_on();

#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = quad_all(total[0][r], [](float x, float y) { return x + y; });
      const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
      const int row = query + 8 * r;
#pragma unroll
      for (int c = 0; c < W / 8; ++c) out[4 * c + 2 * r] *= factor, out[4 * c + 2 * r + 1] *= factor;
      write_columns<T, W / 8>(out, r, f.y.at(tile.b, tile.h, row), row < s.Lq, 0, s.Dv);
      if (f.lse && t == 0 && row < s.Lq)
        f.lse[(int64_t(tile.b) * s.Hq + tile.h) * s.Lq + row] = sum == 0.0f ? 0.0f : top[0][r] * kLn2 + logf(sum);
    }
  }
}

template <class T, int W, bool masked>
__global__ void __launch_bounds__(WarpgroupAttention<W, masked>::kThreads, 1)
    attention_wgmma(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                    const __grid_constant__ TensorMap v, const AttentionCall<T> f, PreviousGrid previous) {
  using Tile = WarpgroupAttention<W, masked>;
  const AttentionRings<W, masked> rings((shared_address(dynamic_shared()) + Tile::kAlignment - 1) / Tile::kAlignment *
                                        Tile::kAlignment);
  if (threadIdx.x == 0) {
    prefetch_map(q), prefetch_map(k), prefetch_map(v);  // parameters, which no grid writes
    constexpr unsigned kWarps = 4 * Tile::kGroups;
    rings.queries.init(kWarps), rings.keys.init(kWarps), rings.values.init(kWarps);
    publish_barriers();
  }
  __syncthreads();
  previous.wait();
  const int group = int(threadIdx.x) / 128;
  if (group == 0) {
    keep_registers<24>();
    if (threadIdx.x == 0) copy_heads<W, masked>(q, k, v, f, rings);
  } else {
    take_registers<Tile::kGroups == 3 ? 160 : 240>();
    attend<T, W, masked>(group - 1, f, rings);
  }
}

}  // namespace sf::cuda
