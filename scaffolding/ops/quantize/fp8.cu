// float8 on CUDA: a block of threads finds a row's largest magnitude and quantises the row, which it then reads from
// the cache; dequantising is one pass, 16 bytes of codes to a thread where rows allow it.
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/quantize/fp8_codes.cuh"
#include "scaffolding/ops/quantize/kernel.h"

namespace sf::cuda {
namespace {

constexpr int kWarp = 32;

template <class F> void as_float8(DType t, const F& f) {
  if (t == kFloat8E4M3) f(Float8E4M3{});
  else f(Float8E5M2{});
}

// The same value for all threads of the block. NaN counts as nothing: it stays NaN in the codes.
__device__ inline float block_maximum(float x) {
  __shared__ float of_warps[kThreads / kWarp];
  for (int by = kWarp / 2; by > 0; by /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, by));
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = of_warps[0];
  for (int i = 1; i < kThreads / kWarp; ++i) x = fmaxf(x, of_warps[i]);
  __syncthreads();
  return x;
}

template <class T, int V> __device__ inline void read_floats(const T* x, float (&v)[V]) {
  const Vec<T, V> in = *reinterpret_cast<const Vec<T, V>*>(x);
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] = float(widen(in.v[i]));
}
template <class Q, int V> __device__ inline void write_codes(Q* q, float (&v)[V], const DividedBy& divided) {
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] = divided(v[i]);
  *reinterpret_cast<Vec<Q, V>*>(q) = codes_of<Q>(v);
}

template <class T, class Q, int V>
__global__ void __launch_bounds__(kThreads)
    measured_rows(const T* x, Q* q, float* scale, int64_t cols, PreviousGrid previous) {
  const int64_t row = blockIdx.x;
  x += row * cols, q += row * cols;
  previous.wait();
  float most = 0, v[V];
  for (int64_t c = int64_t(threadIdx.x) * V; c < cols; c += kThreads * V) {
    read_floats(x + c, v);
#pragma unroll
    for (int i = 0; i < V; ++i) most = fmaxf(most, fabsf(v[i]));
  }
  most = block_maximum(most);
  const float s = most > 0 ? most / Float8<Q>::most : 1.f;
  if (threadIdx.x == 0) scale[row] = s;
  const DividedBy divided(s);
  for (int64_t c = int64_t(threadIdx.x) * V; c < cols; c += kThreads * V) {
    read_floats(x + c, v);
    write_codes(q + c, v, divided);
  }
}

template <class T, class Q, int V>
__global__ void __launch_bounds__(kThreads)
    scaled_elements(const T* x, Q* q, const float* scale, int64_t n, PreviousGrid previous) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * V;
  previous.wait();
  if (i >= n) return;
  float v[V];
  read_floats(x + i, v);
  write_codes(q + i, v, DividedBy(*scale));
}

template <class Q, class T, int V>
__global__ void __launch_bounds__(kThreads)
    widened(const Q* q, T* y, const float* scale, int64_t n, int64_t cols, bool per_row, PreviousGrid previous) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * V;
  previous.wait();
  if (i >= n) return;
  const Vec<Q, V> in = *reinterpret_cast<const Vec<Q, V>*>(q + i);
  const float s = scale[per_row ? i / cols : 0];
  float v[V];
  values_of(in, v);
  for (int j = 0; j < V; j += lanes_for<T>() < V ? lanes_for<T>() : V) {
    constexpr int kStore = lanes_for<T>() < V ? lanes_for<T>() : V;
    Vec<T, kStore> out;
    for (int l = 0; l < kStore; ++l) out.v[l] = to_storage<T>(v[j + l] * s);
    *reinterpret_cast<Vec<T, kStore>*>(y + i + j) = out;
  }
}

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

void quantize(const Fp8Quantize& f) {
  const int64_t n = f.x.numel(), rows = f.x.sizes[0], cols = f.x.sizes[1];
  as_float(f.x.dtype, [&](auto t) {
    as_float8(f.q.dtype, [&](auto u) {
      using T = decltype(t);
      using Q = decltype(u);
      const T* x = f.x.as<const T>();
      Q* q = f.q.as<Q>();
      float* scale = f.scale.as<float>();
      constexpr int V = lanes_for<T>();
      if (f.measure) {
        const bool vectors = cols % V == 0 && is_aligned(x) && is_aligned(q);
        auto kernel = vectors ? measured_rows<T, Q, V> : measured_rows<T, Q, 1>;
        return launch("quantize_fp8", f.x.device, unsigned(rows), kernel, x, q, scale, cols);
      }
      if (n % V == 0 && is_aligned(x) && is_aligned(q))
        launch("quantize_fp8", f.x.device, blocks_for(n, V), scaled_elements<T, Q, V>, x, q, scale, n);
      else launch("quantize_fp8", f.x.device, blocks_for(n, 1), scaled_elements<T, Q, 1>, x, q, scale, n);
    });
  });
}
bool quantize_supports(const Fp8Quantize& f) {
  return is_floating(f.x.dtype) && !is_float8(f.x.dtype) && f.x.sizes[0] < INT32_MAX;
}
SF_KERNEL(fp8_quantize, DeviceType::CUDA, "native", 0, quantize, quantize_supports)

void dequantize(const Fp8Dequantize& f) {
  const int64_t n = f.q.numel(), cols = f.q.sizes[1];
  const bool per_row = f.scale.numel() > 1;
  as_float(f.y.dtype, [&](auto t) {
    as_float8(f.q.dtype, [&](auto u) {
      using T = decltype(t);
      using Q = decltype(u);
      const Q* q = f.q.as<const Q>();
      T* y = f.y.as<T>();
      const float* scale = f.scale.as<const float>();
      const bool vectors = (per_row ? cols : n) % 16 == 0 && is_aligned(q) && is_aligned(y);
      if (vectors)
        launch("dequantize_fp8", f.q.device, blocks_for(n, 16), widened<Q, T, 16>, q, y, scale, n, cols, per_row);
      else launch("dequantize_fp8", f.q.device, blocks_for(n, 1), widened<Q, T, 1>, q, y, scale, n, cols, per_row);
    });
  });
}
SF_KERNEL(fp8_dequantize, DeviceType::CUDA, "native", 0, dequantize, nullptr)

}  // namespace
}  // namespace sf::cuda
