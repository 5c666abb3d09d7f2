// int8 activations on CUDA. What is rounded is rounded as int8_kernel.h says, so that codes, sums and results have the
// CPU's bits.
#include <bit>

#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/real.cuh"
#include "scaffolding/ops/quantize/int8_kernel.h"

namespace sf::cuda {
namespace {

constexpr int kWarp = 32;

// Rounded, never part of a fused multiply-add.
__device__ inline float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// 127 over the largest magnitude; 0 where that is 0 or not finite, or the quotient is not.
__device__ inline float code_factor(float largest) {
  const float by = largest > 0 && largest < INFINITY ? 127.f / largest : 0.f;
  return by < INFINITY ? by : 0.f;
}
template <class T, int V> __device__ inline void write_codes(const Vec<T, V>& x, float by, int8_t* codes) {
  Vec<int8_t, V> out;
#pragma unroll
  for (int i = 0; i < V; ++i) out.v[i] = by > 0 ? int8_t(int(rintf(float(widen(x.v[i])) * by))) : int8_t(0);
  *reinterpret_cast<Vec<int8_t, V>*>(codes) = out;
}

// Of the block: the largest of numbers of 32 bits. Magnitudes are compared by their bits: a NaN is above infinity.
__device__ inline uint32_t block_maximum(uint32_t x) {
  __shared__ uint32_t of_warps[kThreads / kWarp];
  for (int by = kWarp / 2; by > 0; by /= 2) {
    const uint32_t other = __shfl_xor_sync(~0u, x, by);
    x = other > x ? other : x;
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  for (int i = 0; i < kThreads / kWarp; ++i) x = of_warps[i] > x ? of_warps[i] : x;
  return x;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) measured_rows(const T* x, int8_t* codes, float* most, int64_t k) {
  x += int64_t(blockIdx.x) * k, codes += int64_t(blockIdx.x) * k;
  uint32_t largest = 0;
  for (int64_t i = int64_t(threadIdx.x) * V; i < k; i += kThreads * V) {
    const Vec<T, V> in = *reinterpret_cast<const Vec<T, V>*>(x + i);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const uint32_t bits = std::bit_cast<uint32_t>(fabsf(float(widen(in.v[v]))));
      largest = bits > largest ? bits : largest;
    }
  }
  const float all = __uint_as_float(block_maximum(largest)), by = code_factor(all);
  if (threadIdx.x == 0) most[blockIdx.x] = all;
  for (int64_t i = int64_t(threadIdx.x) * V; i < k; i += kThreads * V)
    write_codes<T, V>(*reinterpret_cast<const Vec<T, V>*>(x + i), by, codes + i);
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) given_rows(const T* x, int8_t* codes, const float* most, int64_t n) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i < n) write_codes<T, V>(*reinterpret_cast<const Vec<T, V>*>(x + i), code_factor(*most), codes + i);
}

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

void quantize(const Int8Quantize& q) {
  const int64_t rows = q.x.sizes[0], k = q.x.sizes[1], n = rows * k;
  auto run = [&](auto t) {
    using T = decltype(t);
    auto with = [&](auto lanes) {
      constexpr int V = lanes();
      const T* x = q.x.as<const T>();
      int8_t* codes = q.codes.as<int8_t>();
      float* most = q.most.as<float>();
      if (q.measure) launch("quantize_int8", q.x.device, unsigned(rows), measured_rows<T, V>, x, codes, most, k);
      else launch("quantize_int8", q.x.device, blocks_for(n, V), given_rows<T, V>, x, codes, most, n);
    };
    constexpr int V = lanes_for<T>();
    const bool vectors = (q.measure ? k : n) % V == 0 && is_aligned(q.x.data) && is_aligned(q.codes.data);
    if (vectors) with(std::integral_constant<int, V>());
    else with(std::integral_constant<int, 1>());
  };
  switch (q.x.dtype) {
    case kBFloat16: return run(BFloat16());
    case kFloat16: return run(Half());
    default: return run(float());
  }
}
SF_KERNEL(int8_quantize, DeviceType::CUDA, "native", 0, quantize, nullptr)

struct ScaleOf {
  const float *rows, *columns, *bias;
  bool by_row;
};

template <class T, int V>
__global__ void __launch_bounds__(kThreads) scaled_sums(const int32_t* sums, ScaleOf s, T* y, int64_t n, int64_t all) {
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (at >= all) return;
  const int64_t row = at / n, column = at - row * n;
  const float of_row = s.rows[s.by_row ? row : 0];
  const Vec<int32_t, V> in = *reinterpret_cast<const Vec<int32_t, V>*>(sums + at);
  Vec<T, V> out;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    float x = product(product(float(in.v[v]), of_row), s.columns[column + v]);
    if (s.bias) x += s.bias[column + v];
    out.v[v] = to_storage<T>(x);
  }
  *reinterpret_cast<Vec<T, V>*>(y + at) = out;
}

void scale(const Int8Scale& s) {
  const int64_t n = s.sums.sizes[1], all = s.sums.numel();
  const ScaleOf by{s.rows.as<const float>(), s.columns.as<const float>(), s.bias ? s.bias.as<const float>() : nullptr,
                   s.rows.numel() > 1};
  auto run = [&](auto t) {
    using T = decltype(t);
    auto with = [&](auto lanes) {
      constexpr int V = lanes();
      launch("linear_int8", s.y.device, blocks_for(all, V), scaled_sums<T, V>, s.sums.as<const int32_t>(), by,
             s.y.as<T>(), n, all);
    };
    if (n % 4 == 0 && is_aligned(s.sums.data) && is_aligned(s.y.data)) with(std::integral_constant<int, 4>());
    else with(std::integral_constant<int, 1>());
  };
  switch (s.y.dtype) {
    case kBFloat16: return run(BFloat16());
    case kFloat16: return run(Half());
    default: return run(float());
  }
}
SF_KERNEL(int8_scale, DeviceType::CUDA, "native", 0, scale, nullptr)

// V channels to a thread.
struct Unfold {
  const int8_t* codes;
  int8_t* rows;
  int64_t height, width, channels, out_width, p0;
  int64_t kernel[2], stride[2], padding[2], dilation[2];
};

template <class Word> __global__ void __launch_bounds__(kThreads) unfolded(Unfold u, int64_t words) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= words) return;
  const int64_t each = u.channels / int64_t(sizeof(Word)), c = i % each, tap = i / each % (u.kernel[0] * u.kernel[1]),
                pixel = u.p0 + i / each / (u.kernel[0] * u.kernel[1]);
  const int64_t y = pixel / u.out_width * u.stride[0] + tap / u.kernel[1] * u.dilation[0] - u.padding[0],
                x = pixel % u.out_width * u.stride[1] + tap % u.kernel[1] * u.dilation[1] - u.padding[1];
  Word word{};
  if (y >= 0 && y < u.height && x >= 0 && x < u.width)
    word = reinterpret_cast<const Word*>(u.codes)[(y * u.width + x) * each + c];
  reinterpret_cast<Word*>(u.rows)[i] = word;
}

void unfold(const Int8Unfold& d) {
  Unfold u{d.codes.as<const int8_t>(),
           d.rows.as<int8_t>(),
           d.codes.sizes[0],
           d.codes.sizes[1],
           d.codes.sizes[2],
           d.out_width,
           d.p0,
           {},
           {},
           {},
           {}};
  for (int i = 0; i < 2; ++i)
    u.kernel[i] = d.kernel[i], u.stride[i] = d.stride[i], u.padding[i] = d.padding[i], u.dilation[i] = d.dilation[i];
  auto run = [&](auto word) {
    using Word = decltype(word);
    const int64_t words = d.rows.numel() / int64_t(sizeof(Word));
    launch("conv2d_int8", d.rows.device, blocks_for(words, 1), unfolded<Word>, u, words);
  };
  const bool aligned = is_aligned(u.codes) && is_aligned(u.rows);
  if (aligned && u.channels % 16 == 0) run(Vec<uint32_t, 4>());
  else if (aligned && u.channels % 4 == 0) run(uint32_t());
  else run(uint8_t());
}
SF_KERNEL(int8_unfold, DeviceType::CUDA, "native", 0, unfold, nullptr)

}  // namespace
}  // namespace sf::cuda
