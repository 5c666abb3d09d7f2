// What forward and backward of attention on CUDA share: where heads lie, what the mask says, and products of tiles.
//
// A block of 256 threads works on N = 16 R rows (R = 4, or 2 for heads wider than 256). Thread (ty, tx) = (t / 16, t
// % 16) owns rows ty R .. ty R + R - 1 of a tile of N x N scores and its columns tx, tx + 16, ...; of a tile of N x D
// it owns the same rows and columns.
// So the 16 threads of a row are half a warp: sums and maxima of rows are shuffles,
// and results stay in registers until the end.
// Operands come through shared memory in chunks of 32 columns, as float32: 34 KiB in all, whatever the head size.
#pragma once
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/attention/kernel.h"

namespace sf::cuda {

inline constexpr int kAttentionChunk = 32, kAttentionMostWidth = 512;

template <int R> struct AttentionShared {
  static constexpr int N = 16 * R;
  float a[N][kAttentionChunk + 1], b[N][kAttentionChunk + 1];  // + 1: 16 threads reading 16 rows hit 16 banks
  float p[N][N + 1];
};

// A [B, H, L, D] tensor with unit stride in its last dimension; null data where there is none.
template <class T> struct Heads {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
  Heads() = default;
  explicit Heads(const TensorView& t) {
    if (t.defined()) data = t.as<T>(), batch = t.strides[0], head = t.strides[1], row = t.strides[2];
  }
  __device__ T* at(int64_t b, int64_t h, int64_t l) const { return data + b * batch + h * head + l * row; }
};

struct AttentionMask {
  const void* data = nullptr;
  DType dtype = kBool;
  int64_t strides[4] = {};

  AttentionMask() = default;
  explicit AttentionMask(const TensorView& m) {
    if (!m.defined()) return;
    data = m.data, dtype = m.dtype;
    for (int d = 4 - m.ndim; d < 4; ++d) strides[d] = m.sizes[d - 4 + m.ndim] == 1 ? 0 : m.strides[d - 4 + m.ndim];
  }
  // f(pointer to elements of the mask's dtype)
  template <class F> __device__ auto typed(const F& f) const {
    switch (dtype) {
      case kBool: return f(static_cast<const bool*>(data));
      case kBFloat16: return f(static_cast<const BFloat16*>(data));
      case kFloat16: return f(static_cast<const Half*>(data));
      default: return f(static_cast<const float*>(data));
    }
  }
  __device__ static float added(bool attends) { return attends ? 0.0f : -INFINITY; }
  template <class M> __device__ static float added(M x) { return widen(x); }
  __device__ float value(int64_t at) const {
    return typed([&](const auto* mask) { return added(mask[at]); });
  }
};

struct AttentionShape {
  int Hq = 0, G = 1, Lq = 0, Lk = 0, D = 0, Dv = 0;
  bool causal = false;
  float scale = 1;
  AttentionMask mask;

  AttentionShape() = default;
  template <class Args>
  explicit AttentionShape(const Args& a)
      : Hq(int(a.q.sizes[1])),
        G(a.k.sizes[1] > 0 ? int(a.q.sizes[1] / a.k.sizes[1]) : 1),
        Lq(int(a.q.sizes[2])),
        Lk(int(a.k.sizes[2])),
        D(int(a.q.sizes[3])),
        Dv(int(a.v.sizes[3])),
        causal(a.is_causal),
        scale(float(a.scale)),
        mask(a.mask) {}

  // The score of query i and key j from their product; -inf where i may not see j or where one of them does not exist.
  __device__ float score(int64_t b, int64_t h, int i, int j, float product) const {
    if (i >= Lq || j >= Lk || (causal && j > i)) return -INFINITY;
    float s = product * scale;
    return mask.data
               ? s + mask.value(b * mask.strides[0] + h * mask.strides[1] + i * mask.strides[2] + j * mask.strides[3])
               : s;
  }
  // keys that some query up to this one sees
  __device__ int key_end(int last_query) const { return causal && last_query < Lk ? last_query + 1 : Lk; }
};

template <class Args> bool attention_supported(const Args& a) {
  constexpr int64_t most = INT32_MAX / 2;
  auto wide = [](const TensorView& t) { return t.sizes[3] > kAttentionMostWidth; };
  return (a.q.dtype == kFloat32 || is_reduced(a.q.dtype)) && !wide(a.q) && !wide(a.v) && a.q.sizes[2] < most &&
         a.k.sizes[2] < most && (!a.mask.defined() || a.mask.dtype != kFloat64);
}

// f(type, R, columns per thread) for a call: wide enough for queries and values.
template <class F> void choose_attention(const TensorView& q, const TensorView& v, const F& f) {
  int64_t width = q.sizes[3] > v.sizes[3] ? q.sizes[3] : v.sizes[3];
  as_float(q.dtype, [&](auto t) {
    if constexpr (!std::is_same_v<decltype(t), double>) {
      if (width <= 64) f(t, std::integral_constant<int, 4>(), std::integral_constant<int, 4>());
      else if (width <= 128) f(t, std::integral_constant<int, 4>(), std::integral_constant<int, 8>());
      else if (width <= 256) f(t, std::integral_constant<int, 4>(), std::integral_constant<int, 16>());
      else f(t, std::integral_constant<int, 2>(), std::integral_constant<int, 32>());
    }
  });
}

__device__ inline int tile_row() { return int(threadIdx.x) / 16; }  // ty
__device__ inline int tile_col() { return int(threadIdx.x) % 16; }  // tx

// to[N][32] = columns first .. first + 31 of N rows from `from` on; zeros where row >= rows or column >= cols.
template <int N, class T>
__device__ void bring(float (*to)[kAttentionChunk + 1], const T* from, int64_t stride, int rows, int first, int cols) {
  for (int x = int(threadIdx.x); x < N * kAttentionChunk; x += kThreads) {
    int r = x / kAttentionChunk, c = x % kAttentionChunk;
    to[r][c] = r < rows && first + c < cols ? widen(from[r * stride + first + c]) : 0.0f;
  }
}

// s[i][j] = sum over d of x[row i][d] * y[row j][d] for the thread's rows and columns.
// All threads of the block call it together.
template <int R, class T>
__device__ void row_products(float (&s)[R][R], AttentionShared<R>& m, const T* x, int64_t x_stride, int x_rows,
                             const T* y, int64_t y_stride, int y_rows, int width) {
  constexpr int N = 16 * R;
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < R; ++j) s[i][j] = 0;
  for (int d0 = 0; d0 < width; d0 += kAttentionChunk) {
    bring<N>(m.a, x, x_stride, x_rows, d0, width);
    bring<N>(m.b, y, y_stride, y_rows, d0, width);
    __syncthreads();
#pragma unroll 8
    for (int d = 0; d < kAttentionChunk; ++d)
#pragma unroll
      for (int i = 0; i < R; ++i)
#pragma unroll
        for (int j = 0; j < R; ++j) s[i][j] += m.a[tile_row() * R + i][d] * m.b[tile_col() + 16 * j][d];
    __syncthreads();
  }
}

// out[i][c] += sum over k of p[row i][k] * x[k][column c], or of p[k][row i] * x[k][column c] when turned; p is in m.p
// and may have been written just now. Columns past `width` stay 0.
template <bool turned, int R, int C, class T>
__device__ void add_weighted_rows(float (&out)[R][C], AttentionShared<R>& m, const T* x, int64_t stride, int rows,
                                  int width) {
  constexpr int N = 16 * R;
#pragma unroll
  for (int c = 0; c < C; c += 2) {
    if (c * 16 >= width) break;
    bring<N>(m.b, x, stride, rows, c * 16, width);
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < N; ++k)
#pragma unroll
      for (int i = 0; i < R; ++i) {
        float p = turned ? m.p[k][tile_row() * R + i] : m.p[tile_row() * R + i][k];
        out[i][c] += p * m.b[k][tile_col()];
        out[i][c + 1] += p * m.b[k][tile_col() + 16];
      }
    __syncthreads();
  }
}

// Rows of a tile that exist, from the thread's registers.
template <int R, int C, class T>
__device__ void store_rows(const float (&x)[R][C], const float (&factor)[R], T* to, int64_t stride, int rows,
                           int width) {
#pragma unroll
  for (int i = 0; i < R; ++i) {
    int row = tile_row() * R + i;
    if (row >= rows) continue;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      int col = tile_col() + 16 * c;
      if (col < width) to[row * stride + col] = to_storage<T>(x[i][c] * factor[i]);
    }
  }
}

// Over the 16 threads of a row.
template <class F> __device__ float row_all(float x, const F& combine) {
  for (int with = 8; with > 0; with /= 2) x = combine(x, __shfl_xor_sync(~0u, x, with));
  return x;
}

}  // namespace sf::cuda
