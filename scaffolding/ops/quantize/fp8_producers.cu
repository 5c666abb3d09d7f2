// layer_norm and GEGLU that write float8 and a scale for each row: a group of threads makes a row, finds its largest
// magnitude and writes it.
#include "scaffolding/backend/cuda/mma.cuh"
#include "scaffolding/backend/cuda/rows.cuh"
#include "scaffolding/ops/quantize/fp8_codes.cuh"
#include "scaffolding/ops/quantize/kernel.h"

namespace sf::cuda {
namespace {

constexpr float kLargest = 448;  // of float8_e4m3fn

// NaN counts as nothing: it stays NaN in the codes
__device__ inline float magnitude(float most, float x) { return fmaxf(most, fabsf(x)); }
__device__ inline float scale_for(float most) { return most > 0 ? most / kLargest : 1.f; }
template <int V> __device__ inline void write_codes(Float8E4M3* q, float (&y)[V], const DividedBy& divided) {
#pragma unroll
  for (int i = 0; i < V; ++i) y[i] = divided(y[i]);
  *reinterpret_cast<Vec<Float8E4M3, V>*>(q) = codes_of<Float8E4M3>(y);
}

// V numbers that lie side by side and are aligned as a vector of theirs; `otherwise` where there are none.
template <int V>
__device__ inline void read_numbers(const Numbers& numbers, int64_t first, float otherwise, float (&x)[V]) {
  auto as = [&](auto tag) {
    using W = decltype(tag);
    const Vec<W, V> in = *reinterpret_cast<const Vec<W, V>*>(static_cast<const W*>(numbers.data) + first);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = float(widen(in.v[i]));
  };
  if (!numbers) {
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = otherwise;
    return;
  }
  switch (numbers.dtype) {
    case kFloat32: return as(float());
    case kBFloat16: return as(BFloat16());
    case kFloat16: return as(Half());
    default: return as(double());
  }
}
bool is_aligned(const TensorView& numbers, int lanes) {
  return !numbers || reinterpret_cast<uintptr_t>(numbers.data) % (size_of(numbers.dtype) * size_t(lanes)) == 0;
}

// What is rounded to the activations' type before it is quantised: the numbers of the two ops one after the other.
template <class T> __device__ inline float rounded(float x) { return float(widen(to_storage<T>(x))); }

// A warp makes a row, which it reads again for each step: it is in the cache of the multiprocessor then.
template <int V, class T>
__global__ void __launch_bounds__(kThreads)
    norm_rows(const T* x, Numbers weight, Numbers bias, Float8E4M3* q, float* scale, int64_t rows, int64_t cols,
              float eps, PreviousGrid previous) {
  const int64_t row = int64_t(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  const int lane = int(threadIdx.x) % kWarp;
  previous.wait();
  if (row >= rows) return;  // a whole warp
  x += row * cols, q += row * cols;
  auto add = [](float a, float b) { return a + b; };
  auto each = [&](const auto& f) {
    for (int64_t c = int64_t(lane) * V; c < cols; c += int64_t(kWarp) * V) {
      float v[V];
      read_lanes<V>(x + c, v);
      f(c, v);
    }
  };
  float sum = 0, squares = 0, most = 0;
  each([&](int64_t, float(&v)[V]) {
    for (int i = 0; i < V; ++i) sum += v[i];
  });
  const float mean = warp_all(sum, add) / float(cols);
  each([&](int64_t, float(&v)[V]) {
    for (int i = 0; i < V; ++i) squares += (v[i] - mean) * (v[i] - mean);
  });
  const float rstd = 1.f / sqrtf(warp_all(squares, add) / float(cols) + eps);
  auto norm = [&](int64_t c, float(&v)[V]) {
    float w[V], b[V];
    read_numbers(weight, c, 1.f, w);
    read_numbers(bias, c, 0.f, b);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = rounded<T>((v[i] - mean) * rstd * w[i] + b[i]);
  };
  each([&](int64_t c, float(&v)[V]) {
    norm(c, v);
    for (int i = 0; i < V; ++i) most = magnitude(most, v[i]);
  });
  const float s = scale_for(warp_all(most, [](float a, float b) { return fmaxf(a, b); }));
  if (lane == 0) scale[row] = s;
  const DividedBy divided(s);
  each([&](int64_t c, float(&v)[V]) {
    norm(c, v);
    write_codes<V>(q + c, v, divided);
  });
}

void norm(const LayerNormFp8& n) {
  const int64_t rows = n.x.sizes[0], cols = n.x.sizes[1];
  as_float(n.x.dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (sizeof(T) < 8) {
      constexpr int V = lanes_for<T>();
      const T* x = n.x.as<const T>();
      Float8E4M3* q = n.q.as<Float8E4M3>();
      auto with = [&](auto kernel) {
        launch("layer_norm_fp8", n.x.device, unsigned((rows + kThreads / kWarp - 1) / (kThreads / kWarp)), kernel, x,
               Numbers(n.weight), Numbers(n.bias), q, n.scale.as<float>(), rows, cols, float(n.eps));
      };
      if (aligned_rows<T, V>(cols, x) && aligned_rows<Float8E4M3, V>(cols, q) && is_aligned(n.weight, V) &&
          is_aligned(n.bias, V))
        with(norm_rows<V, T>);
      else with(norm_rows<1, T>);
    }
  });
}
bool norm_supports(const LayerNormFp8& n) { return n.x.dtype == kFloat32 || is_reduced(n.x.dtype); }
SF_KERNEL(layer_norm_fp8_kernel, DeviceType::CUDA, "native", 0, norm, norm_supports)

// A row of results waits in shared memory for its scale.
template <int V, class T>
__global__ void __launch_bounds__(kThreads)
    gated_rows(const T* hidden, const T* gate, int64_t hidden_row, int64_t gate_row, Float8E4M3* q, float* scale,
               int64_t cols, PreviousGrid previous) {
  float* results = reinterpret_cast<float*>(dynamic_shared());
  const int64_t row = blockIdx.x;
  hidden += row * hidden_row, gate += row * gate_row, q += row * cols;
  previous.wait();
  float h[V], g[V], most = 0;
  for (int64_t c = int64_t(threadIdx.x) * V; c < cols; c += int64_t(kThreads) * V) {
    read_lanes<V>(hidden + c, h), read_lanes<V>(gate + c, g);
    for (int i = 0; i < V; ++i) {
      const float y = rounded<T>(h[i] * (0.5f * g[i] * (1.f + erff(g[i] * 0.70710678118654752f))));
      results[c + i] = y;
      most = magnitude(most, y);
    }
  }
  const float s = scale_for(RowThreads<kThreads>::all(most, [](float a, float b) { return fmaxf(a, b); }));
  if (threadIdx.x == 0) scale[row] = s;
  const DividedBy divided(s);
  for (int64_t c = int64_t(threadIdx.x) * V; c < cols; c += int64_t(kThreads) * V) {  // the thread's own results
    for (int i = 0; i < V; ++i) h[i] = results[c + i];
    write_codes<V>(q + c, h, divided);
  }
}

void gated(const GegluFp8& f) {
  const int64_t rows = f.hidden.sizes[0], cols = f.hidden.sizes[1];
  as_float(f.hidden.dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (sizeof(T) < 8) {
      constexpr int V = lanes_for<T>();
      const T *hidden = f.hidden.as<const T>(), *gate = f.gate.as<const T>();
      Float8E4M3* q = f.q.as<Float8E4M3>();
      const bool vectors = aligned_rows<T, V>(cols, hidden, gate) && f.hidden.strides[0] % V == 0 &&
                           f.gate.strides[0] % V == 0 && aligned_rows<Float8E4M3, V>(cols, q);
      const Blocks blocks{unsigned(rows), kThreads, size_t(cols) * sizeof(float)};
      auto with = [&](auto kernel) {
        launch("geglu_fp8", f.hidden.device, blocks, kernel, hidden, gate, f.hidden.strides[0], f.gate.strides[0], q,
               f.scale.as<float>(), cols);
      };
      if (vectors) with(gated_rows<V, T>);
      else with(gated_rows<1, T>);
    }
  });
}
constexpr int64_t kMostColumns = 24576;  // 96 KiB of float32, which a block may have on every GPU with float8
bool gated_supports(const GegluFp8& f) {
  return (f.hidden.dtype == kFloat32 || is_reduced(f.hidden.dtype)) && f.hidden.sizes[1] <= kMostColumns &&
         f.hidden.sizes[0] <= INT32_MAX;
}
SF_KERNEL(geglu_fp8_kernel, DeviceType::CUDA, "native", 0, gated, gated_supports)

}  // namespace
}  // namespace sf::cuda
