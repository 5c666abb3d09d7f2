// What the backward kernels of attention on CUDA share: their arguments, and delta, the sum of dy y of each query.
#pragma once
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/attention/attention_tile.cuh"

namespace sf::cuda {

template <class T> struct Backward {
  AttentionShape shape;
  Heads<const T> q, k, v, y, dy;
  const float* lse;
  float* delta;  // [B, Hq, Lq]
  Heads<T> dq, dk, dv;
  float* dmask;  // may be null
  int tiles;
};

// delta of a row per warp.
template <class T>
__global__ void __launch_bounds__(kThreads) row_deltas(Backward<T> g, int64_t rows, PreviousGrid previous) {
  int64_t row = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  previous.wait();
  if (row >= rows) return;
  int64_t l = row % g.shape.Lq, h = row / g.shape.Lq % g.shape.Hq, b = row / g.shape.Lq / g.shape.Hq;
  const T *y = g.y.at(b, h, l), *dy = g.dy.at(b, h, l);
  float sum = 0;
  for (int c = int(threadIdx.x) % 32; c < g.shape.Dv; c += 32) sum += widen(y[c]) * widen(dy[c]);
  for (int with = 16; with > 0; with /= 2) sum += __shfl_xor_sync(~0u, sum, with);
  if (threadIdx.x % 32 == 0) g.delta[row] = sum;
}

// The arguments of a call, with delta computed; tiles are the caller's to say. Owns delta.
template <class T> struct RowDeltas {
  explicit RowDeltas(const AttentionBackward& a)
      : rows(a.q.sizes[0] * a.q.sizes[1] * a.q.sizes[2]), delta(a.q.device, size_t(rows) * sizeof(float)) {
    arguments = {AttentionShape(a),
                 Heads<const T>(a.q),
                 Heads<const T>(a.k),
                 Heads<const T>(a.v),
                 Heads<const T>(a.y),
                 Heads<const T>(a.dy),
                 a.lse.as<const float>(),
                 delta.template as<float>(),
                 Heads<T>(a.dq),
                 Heads<T>(a.dk),
                 Heads<T>(a.dv),
                 a.dmask.defined() ? a.dmask.as<float>() : nullptr,
                 0};
    if (rows > 0)
      launch("attention_backward", a.q.device, unsigned((rows + kThreads / 32 - 1) / (kThreads / 32)), row_deltas<T>,
             arguments, rows);
  }

  int64_t rows;  // B Hq Lq
  Scratch delta;
  Backward<T> arguments;
};

}  // namespace sf::cuda
