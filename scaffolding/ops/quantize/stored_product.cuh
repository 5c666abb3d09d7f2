// Numbers of weights in few bits, and products with few rows of activations, for any decoder (stored_rows.cuh). Each
// file of formats includes this and says which kernels there are.
#pragma once
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/matmul/activate.cuh"
#include "scaffolding/ops/quantize/stored_product.h"
#include "scaffolding/ops/quantize/stored_rows.cuh"

namespace sf::cuda {

// A decoder and where its numbers are.
template <class D> struct Weight {
  D numbers;
  int64_t bytes;  // of all of them
  int64_t k;      // numbers of a row
};

template <class D> __device__ inline void fill_sixteen(const D& numbers, float* table) {
  if constexpr (D::kSixteen) {
    if (threadIdx.x < 16) table[threadIdx.x] = numbers.sixteenth(int(threadIdx.x));
    __syncthreads();
  }
}

// ---- Numbers: a warp makes 1024 of them, eight to a lane and neighbours to neighbours.

inline constexpr int kDecoded = 1024;

template <class D, class T>
__global__ void __launch_bounds__(kThreads) stored_numbers(Weight<D> w, T* y, int64_t first, int64_t count) {
  __shared__ float table[16];
  fill_sixteen(w.numbers, table);
  const int64_t from = (int64_t(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp) * kDecoded;
  if (from >= count) return;
  unsigned char* bytes = dynamic_shared() + threadIdx.x / kWarp * staged_bytes<D>(kDecoded);
  const int numbers = count - from < kDecoded ? int(count - from) : kDecoded;
  const Staged s{reinterpret_cast<const uint32_t*>(bytes),
                 stage(w.numbers.data, w.bytes, (first + from) / D::kBlock * D::kBytes,
                       (numbers + D::kBlock - 1) / D::kBlock * D::kBytes, bytes)};
  commit_copies();
  wait_for_copies<0>();
  __syncwarp();
  for (int i = int(threadIdx.x % kWarp) * 8; i < numbers; i += 8 * kWarp) {
    float x[8];
    w.numbers.template decode<8>(s, i, first + from, (first + from + i) / w.k, table, x);
    constexpr int V = lanes_for<T>();
#pragma unroll
    for (int j = 0; j < 8; j += V) {
      Vec<T, V> out;
#pragma unroll
      for (int l = 0; l < V; ++l) out.v[l] = to_storage<T>(x[j + l]);
      *reinterpret_cast<Vec<T, V>*>(y + from + i + j) = out;
    }
  }
}

// `count` numbers from `first` on, a multiple of a block and of 16, to y, which is 16-byte aligned.
template <class D>
void decode_numbers(const char* op, Device device, const Weight<D>& w, int64_t first, int64_t count, DType dtype,
                    void* y) {
  auto run = [&](auto t) {
    using T = decltype(t);
    const Blocks blocks{blocks_for(count, kDecoded / kWarp), kThreads, kThreads / kWarp * staged_bytes<D>(kDecoded)};
    launch(op, device, blocks, stored_numbers<D, T>, w, static_cast<T*>(y), first, count);
  };
  switch (dtype) {
    case kBFloat16: return run(BFloat16());
    case kFloat16: return run(Half());
    default: return run(float());
  }
}

// ---- Few rows: a warp makes two columns of c, reading their rows of the weight 512 numbers at a time, the next ones
// on their way while these are multiplied. Activations are floats in shared memory, some numbers of each row at once,
// in sixteens that lie 20 apart: lanes then read them from different banks.

inline constexpr int kStep = 16 * kWarp, kSpread = 20, kActivations = 8192;

struct FewRows {
  Numbers a, bias, residual, c;
  int64_t a_row, residual_row, c_row;
  int64_t m, n;
  unsigned columns;  // blocks that share their rows
  int depth;         // numbers of a row that are in shared memory at once, a multiple of kStep
  bool vectors;      // a is read 16 bytes at a time
  Activation act;
};

// Rows row .. row + M, numbers k0 .. k0 + depth of a, zeros where there are none.
template <int M, class T>
__device__ inline void load_activations(const FewRows& f, int64_t row, int k0, int k, float* to) {
  const T* a = static_cast<const T*>(f.a.data);
  constexpr int V = lanes_for<T>();
  const int each = f.vectors ? V : 1, places = f.depth / each;
  for (int i = int(threadIdx.x); i < M * places; i += int(blockDim.x)) {
    const int r = i / places, x = i % places * each;
    float* at = to + r * (f.depth / 16 * kSpread) + x / 16 * kSpread + x % 16;
    const bool exists = row + r < f.m && k0 + x < k;
    const T* from = a + (row + r) * f.a_row + k0 + x;
    if (f.vectors) {
      Vec<T, V> in{};
      if (exists) in = *reinterpret_cast<const Vec<T, V>*>(from);
#pragma unroll
      for (int v = 0; v < V; ++v) at[v] = float(widen(in.v[v]));
    } else {
      *at = exists ? float(widen(*from)) : 0.f;
    }
  }
}

__device__ inline float number_at(const Numbers& x, int64_t i) {
  switch (x.dtype) {
    case kBFloat16: return widen(static_cast<const BFloat16*>(x.data)[i]);
    case kFloat16: return widen(static_cast<const Half*>(x.data)[i]);
    default: return static_cast<const float*>(x.data)[i];
  }
}

template <class D, int M> __global__ void __launch_bounds__(kThreads, M == 1 ? 3 : 2) few_rows(Weight<D> w, FewRows f) {
  __shared__ float table[16];
  fill_sixteen(w.numbers, table);
  constexpr int kSegment = staged_bytes<D>(kStep);
  const int lane = int(threadIdx.x % kWarp), warp = int(threadIdx.x / kWarp), warps = int(blockDim.x / kWarp);
  const int64_t row = int64_t(blockIdx.x / f.columns) * M;
  const int64_t column = (int64_t(blockIdx.x % f.columns) * warps + warp) * 2, last = f.n - 1;
  // Past the last column that one again, for nothing.
  const int64_t columns[2] = {column < last ? column : last, column + 1 < last ? column + 1 : last};
  const int k = int(w.k);
  float* activations = reinterpret_cast<float*>(dynamic_shared());
  unsigned char* segments = dynamic_shared() + M * f.depth / 16 * kSpread * int(sizeof(float)) + warp * 4 * kSegment;
  int places[2][2];
  auto bring = [&](int k0, int buffer) {
    const int numbers = k - k0 < kStep ? k - k0 : kStep;
#pragma unroll
    for (int c = 0; c < 2; ++c)
      places[buffer][c] =
          stage(w.numbers.data, w.bytes, (columns[c] * w.k + k0) / D::kBlock * D::kBytes,
                (numbers + D::kBlock - 1) / D::kBlock * D::kBytes, segments + (2 * buffer + c) * kSegment);
  };
  float sums[M][2] = {};
  int within = 0;  // which of the activations come next
  auto multiply = [&](int k0, int buffer) {
    if (k0 + lane * 16 >= k) return;
    float x[2][16];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const Staged s{reinterpret_cast<const uint32_t*>(segments + (2 * buffer + c) * kSegment), places[buffer][c]};
      w.numbers.template decode<16>(s, lane * 16, columns[c] * w.k + k0, columns[c], table, x[c]);
    }
    const float* a = activations + (within / 16 + lane) * kSpread;
#pragma unroll
    for (int m = 0; m < M; ++m, a += f.depth / 16 * kSpread)
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        const Vec<float, 4> four = *reinterpret_cast<const Vec<float, 4>*>(a + i);
#pragma unroll
        for (int v = 0; v < 4; ++v)
#pragma unroll
          for (int c = 0; c < 2; ++c) sums[m][c] = fmaf(four.v[v], x[c][i + v], sums[m][c]);
      }
  };
  auto step = [&](int k0, int buffer) {
    if (within == 0) {
      __syncthreads();  // until all are done with the last ones
      switch (f.a.dtype) {
        case kBFloat16: load_activations<M, BFloat16>(f, row, k0, k, activations); break;
        case kFloat16: load_activations<M, Half>(f, row, k0, k, activations); break;
        default: load_activations<M, float>(f, row, k0, k, activations);
      }
      __syncthreads();
    }
    if (k0 + kStep < k) bring(k0 + kStep, 1 - buffer);
    commit_copies();
    wait_for_copies<1>();
    __syncwarp();
    multiply(k0, buffer);
    within = within + kStep == f.depth ? 0 : within + kStep;
    __syncwarp();  // before its bytes are overwritten
  };
  bring(0, 0);
  commit_copies();
  for (int k0 = 0; k0 < k; k0 += 2 * kStep) {
    step(k0, 0);
    if (k0 + kStep < k) step(k0 + kStep, 1);
  }
  wait_for_copies<0>();
  __syncwarp();
  float* results = reinterpret_cast<float*>(segments);
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float sum = sums[m][c];
#pragma unroll
      for (int by = kWarp / 2; by > 0; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
      if (lane == 0) results[m * 2 + c] = sum;
    }
  __syncwarp();
  const int64_t r = row + lane / 2, col = column + lane % 2;
  if (lane >= 2 * M || r >= f.m || col >= f.n) return;
  float x = results[lane];
  if (f.bias) x += number_at(f.bias, col);
  if (f.residual) x += number_at(f.residual, r * f.residual_row + col);
  x = activate(f.act, x);
  const int64_t at = r * f.c_row + col;
  switch (f.c.dtype) {
    case kBFloat16: static_cast<BFloat16*>(f.c.data)[at] = to_storage<BFloat16>(x); return;
    case kFloat16: static_cast<Half*>(f.c.data)[at] = to_storage<Half>(x); return;
    default: static_cast<float*>(f.c.data)[at] = x;
  }
}

template <class D> void multiply_few_rows(const char* op, const StoredProduct& p, const Weight<D>& w) {
  const int64_t m = p.c.sizes[0], n = p.c.sizes[1];
  const int lanes = int(16 / size_of(p.a.dtype));
  FewRows f{p.a,
            p.bias,
            p.residual,
            p.c,
            p.a.strides[0],
            p.residual ? p.residual.strides[0] : 0,
            p.c.strides[0],
            m,
            n,
            0,
            0,
            reinterpret_cast<uintptr_t>(p.a.data) % 16 == 0 && (m == 1 || p.a.strides[0] % lanes == 0),
            p.act};
  auto run = [&](auto rows) {
    constexpr int M = rows();
    constexpr unsigned kPerBlock = 2 * kThreads / kWarp;
    f.columns = unsigned((n + kPerBlock - 1) / kPerBlock);
    f.depth = int(w.k < kActivations / M ? (w.k + kStep - 1) / kStep * kStep : kActivations / M);
    const Blocks blocks{f.columns * unsigned((m + M - 1) / M), kThreads,
                        size_t(M * f.depth / 16 * kSpread) * sizeof(float) +
                            size_t(kThreads / kWarp) * 4 * size_t(staged_bytes<D>(kStep))};
    launch(op, p.c.device, blocks, few_rows<D, M>, w, f);
  };
  if (m == 1) run(std::integral_constant<int, 1>());
  else if (m == 2) run(std::integral_constant<int, 2>());
  else if (m <= 4) run(std::integral_constant<int, 4>());
  else run(std::integral_constant<int, 8>());
}

template <class D> void multiply_stored(const char* op, const StoredProduct& p, const Weight<D>& w) {
  if (p.c.sizes[0] <= kFewRows) return multiply_few_rows(op, p, w);
  multiply_strips(p, [&](int64_t row, int64_t rows, void* to) {
    decode_numbers(op, p.c.device, w, row * w.k, rows * w.k, p.a.dtype, to);
  });
}

}  // namespace sf::cuda
