// The kernel behind wgmma_product.h. Blocks stay and take one tile after the other. One thread of the first warpgroup
// starts the copies of 128 bytes along k at a time, into a ring of stages; the other warpgroups multiply them, each 64
// rows of the tile. A stage has two barriers: `full`, which the copies' bytes end, and `empty`, at which each warp that
// read it arrives. The blocks of a cluster make tiles below each other: each copies a part of b for all of them, and
// warps arrive at the empty barriers of all.
#pragma once
#include <cuda_runtime.h>

#include "scaffolding/backend/cuda/previous_grid.cuh"
#include "scaffolding/backend/cuda/vec.cuh"
#include "scaffolding/backend/cuda/warpgroup.cuh"
#include "scaffolding/backend/cuda/warpgroup_rows.cuh"
#include "scaffolding/ops/fused/glu/gate.cuh"
#include "scaffolding/ops/matmul/kernel.h"

namespace sf::cuda {

// Of a kernel, besides its maps.
struct WgmmaCall {
  int m, n, steps;       // steps of 128 bytes along k
  int cluster;           // blocks
  int tiles_m, tiles_n;  // tiles_m: of a cluster, one for each of its blocks
  float alpha, beta;
  const void *bias, *gate_bias;           // null: none
  bool wide_bias;                         // of float32
  const float *row_scale, *column_scale;  // of float8
  bool scaled_rows, scaled_columns;       // each has its own
  const void* addend;                     // null: none
  int64_t addend_row;
  void* c;
  int64_t c_row;
};

// kSums columns of sums in a tile of 64 kGroups rows. Tiles of a gated product have kSums / 2 columns of c.
template <int kGroups, int kSums> struct WgmmaShape {
  static constexpr int kRows = 64 * kGroups, kRowBytes = kBoxRowBytes, kThreads = 128 * (kGroups + 1);
  static constexpr int kBytesA = kRows * kRowBytes, kBytesB = kSums * kRowBytes, kBytes = kBytesA + kBytesB;
  static constexpr int kAlignment = 1024, kMost = (227 << 10) - kAlignment - 256;  // of shared memory; 256: barriers
  static constexpr int kStages = kMost / kBytes < 8 ? kMost / kBytes : 8;
  static constexpr int kShared = kAlignment + kStages * kBytes + 256;
};

// Which tile is the i-th: eight rows of tiles at a time, column by column, so that the blocks that run together share
// rows of a and b in the second-level cache.
struct TilePlace {
  int row, column;
  __device__ TilePlace(int i, int tiles_m, int tiles_n) {
    constexpr int kBand = 8;
    const int band = i / (kBand * tiles_n), first = band * kBand, in_band = i - first * tiles_n;
    const int rows = tiles_m - first < kBand ? tiles_m - first : kBand;
    row = first + in_band % rows, column = in_band / rows;
  }
};

// What gates a product.
template <class T, Activation act> __device__ inline float gate_of(float x) {
  if constexpr (act == Activation::Silu) return Gate<T>::silu(x);
  else if constexpr (act == Activation::GeluTanh) return Gate<T>::gelu_tanh(x);
  else return Gate<T>::gelu(x);
}

// The sums of a thread are two rows' (`half`: 8 apart), of each two neighbouring columns every 8: sums[kFirst + 4 j + 2
// half + i] is of column 8 j + i from the thread's first one on, of which `left` columns exist.
// x = alpha * x + numbers[column], which are of B.
template <class B, int kFirst, int kCount, int n>
__device__ inline void add_columns(float (&x)[n], float alpha, const B* numbers, int left) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (8 * j >= left) continue;
    const Vec<B, 2> two = *reinterpret_cast<const Vec<B, 2>*>(numbers + 8 * j);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[kFirst + 4 * j + i] = alpha * x[kFirst + 4 * j + i] + widen(two.v[i % 2]);
  }
}
template <class T, int kFirst, int kCount, int n>
__device__ inline void scale_and_add(float (&x)[n], float alpha, const void* numbers, bool wide, int column, int left) {
  if (!numbers) {
#pragma unroll
    for (int i = 0; i < 4 * kCount; ++i) x[kFirst + i] *= alpha;
  } else if (wide) {
    add_columns<float, kFirst, kCount>(x, alpha, static_cast<const float*>(numbers) + column, left);
  } else {
    add_columns<T, kFirst, kCount>(x, alpha, static_cast<const T*>(numbers) + column, left);
  }
}

// x *= what the thread's two rows and its columns are scaled by.
template <int kCount, int n>
__device__ inline void scale(const WgmmaCall& g, float (&x)[n], int row, int column, int left) {
  float of_row[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    of_row[half] = g.row_scale[g.scaled_rows && row + 8 * half < g.m ? row + 8 * half : 0];
  float two[2] = {g.column_scale[0], g.column_scale[0]};
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (8 * j >= left) continue;
    if (g.scaled_columns) two[0] = g.column_scale[column + 8 * j], two[1] = g.column_scale[column + 8 * j + 1];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[4 * j + i] *= of_row[i / 2] * two[i % 2];
  }
}

// The finished sums of a warpgroup's 64 rows from `first_row` on and the tile's columns from `first_column` on.
template <class T, Activation act, bool scaled, int n>
__device__ void finish(const WgmmaCall& g, float (&sums)[n], int first_row, int first_column) {
  constexpr bool kGated = act != Activation::None;
  constexpr int kGates = kGated ? n / 2 : 0, kCount = (kGated ? n / 2 : n) / 4;
  const int lane = int(threadIdx.x) % 32, t = lane % 4;
  const int column = first_column + 2 * t, left = g.n - column;
  const int row = first_row + int(threadIdx.x) / 32 % 4 * 16 + lane / 4;
  if constexpr (scaled) scale<kCount>(g, sums, row, column, left);
  scale_and_add<T, 0, kCount>(sums, g.alpha, g.bias, g.wide_bias, column, left);
  if constexpr (kGated) {
    scale_and_add<T, kGates, kCount>(sums, g.alpha, g.gate_bias, g.wide_bias, column, left);
#pragma unroll
    for (int i = 0; i < 4 * kCount; ++i) sums[i] *= gate_of<T, act>(sums[kGates + i]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool exists = row + 8 * half < g.m;
    if (g.addend && exists) {
      const T* addend = static_cast<const T*>(g.addend) + (row + 8 * half) * g.addend_row + column;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        if (8 * j >= left) continue;
        const Vec<T, 2> two = *reinterpret_cast<const Vec<T, 2>*>(addend + 8 * j);
#pragma unroll
        for (int i = 0; i < 2; ++i) sums[4 * j + 2 * half + i] += g.beta * widen(two.v[i]);
      }
    }
    T* row_of_c = static_cast<T*>(g.c) + (row + 8 * half) * g.c_row;
    write_columns<T, kCount>(sums, half, row_of_c, exists, first_column, g.n);
  }
}

// The tiles that the cluster makes: every so many, one for each of its blocks.
struct TilesOfCluster {
  int first, step, end;
  __device__ explicit TilesOfCluster(const WgmmaCall& g)
      : first(int(blockIdx.x) / g.cluster), step(int(gridDim.x) / g.cluster), end(g.tiles_m * g.tiles_n) {}
};

// By one thread: all copies for the block's tiles, as stages become empty.
template <class Q, class Shape, bool gated>
__device__ void copy_operands(const TensorMap& a, const TensorMap& b, const TensorMap& gate, const WgmmaCall& g,
                              SharedAddress stages, SharedAddress full, SharedAddress empty) {
  constexpr int kColumns = Shape::kBytesB / Shape::kRowBytes / (gated ? 2 : 1), kDepth = Shape::kRowBytes / sizeof(Q);
  const int rank = int(cluster_rank()), part = kColumns / g.cluster;  // rows of b that this block copies
  const unsigned all = (1u << g.cluster) - 1;
  int stage = 0;
  unsigned parity = 1;  // of the phase that ends when a stage is empty: at first they are
  const TilesOfCluster tiles(g);
  for (int i = tiles.first; i < tiles.end; i += tiles.step) {
    const TilePlace tile(i, g.tiles_m, g.tiles_n);
    for (int step = 0; step < g.steps; ++step) {
      const SharedAddress at = stages + stage * Shape::kBytes, arrived = full + 8 * stage,
                          to = at + Shape::kBytesA + rank * part * Shape::kRowBytes;
      const int row = tile.column * kColumns + rank * part;
      wait_for_cluster_phase(empty + 8 * stage, parity);
      arrive_and_expect(arrived, Shape::kBytes);
      copy_box(at, a, (tile.row * g.cluster + rank) * Shape::kRows, step * kDepth, arrived);
      copy_box_to(all, to, b, row, step * kDepth, arrived);
      if constexpr (gated) copy_box_to(all, to + Shape::kBytesB / 2, gate, row, step * kDepth, arrived);
      if (++stage == Shape::kStages) stage = 0, parity ^= 1;
    }
  }
}

// By a warpgroup: its 64 rows of every tile.
template <class Q, class T, class Shape, int kSums, Activation act>
__device__ void multiply_rows(int group, const WgmmaCall& g, SharedAddress stages, SharedAddress full,
                              SharedAddress empty) {
  constexpr int kColumns = act != Activation::None ? kSums / 2 : kSums;
  const int lane = int(threadIdx.x) % 32;
  const int rank = int(cluster_rank());
  auto release = [&](int stage) {
    if (lane < g.cluster) arrive_at(empty + 8 * stage, unsigned(lane));
  };
  int stage = 0;
  unsigned parity = 0;
  const TilesOfCluster tiles(g);
  for (int i = tiles.first; i < tiles.end; i += tiles.step) {
    float sums[kSums / 2];
    int reading = stage;  // the stage whose products may be under way
    for (int step = 0; step < g.steps; ++step) {
      const SharedAddress a = stages + stage * Shape::kBytes + group * 64 * Shape::kRowBytes,
                          b = stages + stage * Shape::kBytes + Shape::kBytesA;
      wait_for_phase(full + 8 * stage, parity);
      begin_products();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        multiply_add_rows<Q, kSums>(sums, rows_along_k(a + 32 * k), rows_along_k(b + 32 * k), k > 0 || step > 0);
      commit_products();
      if (step > 0) {
        wait_for_products<1>(sums);
        release(reading);
      }
      reading = stage;
      if (++stage == Shape::kStages) stage = 0, parity ^= 1;
    }
    wait_for_products<0>(sums);
    release(reading);

    const TilePlace tile(i, g.tiles_m, g.tiles_n);
    finish<T, act, sizeof(Q) == 1>(g, sums, (tile.row * g.cluster + rank) * Shape::kRows + group * 64,
                                   tile.column * kColumns);
  }
}

// Q: of the operands.
template <class Q, class T, int kGroups, int kSums, Activation act>
__global__ void __launch_bounds__(128 * (kGroups + 1), 1)
    wgmma_product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                  const __grid_constant__ TensorMap gate, const WgmmaCall g, PreviousGrid previous) {
  using Shape = WgmmaShape<kGroups, kSums>;
  const unsigned warps = unsigned(4 * kGroups * g.cluster);  // that a stage is read by, here or in other blocks
  const SharedAddress stages =
      (shared_address(dynamic_shared()) + Shape::kAlignment - 1) / Shape::kAlignment * Shape::kAlignment;
  const SharedAddress full = stages + Shape::kStages * Shape::kBytes, empty = full + 8 * Shape::kStages;
  if (threadIdx.x == 0) {
    prefetch_map(a), prefetch_map(b);  // parameters, which no grid writes
    if constexpr (act != Activation::None) prefetch_map(gate);
    for (int i = 0; i < Shape::kStages; ++i) init_barrier(full + 8 * i, 1), init_barrier(empty + 8 * i, warps);
    publish_barriers();
  }
  arrive_without_writes();  // but for the barriers, which are published
  wait_for_cluster();
  previous.wait();
  const int group = int(threadIdx.x) / 128;
  if (group == 0) {
    if constexpr (kGroups > 1) keep_registers<40>();
    if (threadIdx.x == 0) copy_operands<Q, Shape, act != Activation::None>(a, b, gate, g, stages, full, empty);
  } else {
    if constexpr (kGroups > 1) take_registers<232>();
    multiply_rows<Q, T, Shape, kSums, act>(group - 1, g, stages, full, empty);
  }
  if (g.cluster == 1) return;
  arrive_at_cluster();  // the other may still copy into this block's memory
  wait_for_cluster();
}

}  // namespace sf::cuda
