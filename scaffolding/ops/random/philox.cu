// torch's CUDA numbers on CUDA: the launch is torch's own, so that every element comes from the same thread and round
// (philox_numbers.h).
#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/pointers.cuh"
#include "scaffolding/ops/random/philox_numbers.h"

namespace sf::cuda {
namespace {

template <class N> __global__ void __launch_bounds__(kThreads) draw_numbers(N numbers, PhiloxDraw d) {
  int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  philox::Stream stream(d.place);
  for (int64_t round = 0; round < d.rounds; ++round) {
    philox::Words w = stream.words(uint64_t(round), uint64_t(thread));
    using T = decltype(numbers(0, w));
    T x[N::lanes];  // all before the first is stored: two normals share a radius
#pragma unroll
    for (int lane = 0; lane < N::lanes; ++lane) x[lane] = numbers(lane, w);
#pragma unroll
    for (int lane = 0; lane < N::lanes; ++lane) {
      int64_t i = (round * N::lanes + lane) * d.threads + thread;
      if (i >= d.n) break;
      if constexpr (std::is_same_v<T, int64_t>) {
        if (d.dtype == kBool) static_cast<bool*>(d.out)[i] = x[lane] != 0;
        else set_element(d.out, d.dtype, i, x[lane]);
      } else {
        static_cast<T*>(d.out)[i] = x[lane];
      }
    }
  }
}

void draw(const PhiloxDraw& d) {
  philox::visit_numbers(d, [&](auto numbers) {
    launch("random", device_of(d.out, "random"), unsigned(d.threads / kThreads), draw_numbers<decltype(numbers)>,
           numbers, d);
  });
}

// A thread takes four neighbours, as torch's.
template <class P>
__global__ void __launch_bounds__(kThreads)
    draw_chances(void* out, DType dtype, const P* chances, int64_t n, PhiloxPlace place) {
  philox::Stream stream(place);
  for (int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x; 4 * thread < n;
       thread += int64_t(gridDim.x) * kThreads) {
    philox::Words w = stream.words(0, uint64_t(thread));
    for (int64_t i = 4 * thread; i < 4 * thread + 4 && i < n; ++i) {
      bool happens = philox::happens(w, i, chances[i]);
      if (dtype == kBool) static_cast<bool*>(out)[i] = happens;
      else set_element(out, dtype, i, int64_t(happens));
    }
  }
}

// Blocks for n items, a thread each and then the next.
unsigned blocks_in_turn(int64_t n) {
  return unsigned(n < int64_t(kThreads) << 16 ? (n + kThreads - 1) / kThreads : 1 << 16);
}

void draw_chances(const PhiloxChances& c) {
  int64_t n = c.out.numel();
  auto run = [&](auto p) {
    using P = decltype(p);
    launch("bernoulli", c.out.device, blocks_in_turn((n + 3) / 4), draw_chances<P>, c.out.data, c.out.dtype,
           c.chances.template as<const P>(), n, c.place);
  };
  if (c.chances.dtype == kFloat64) run(double());
  else run(float());
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    draw_categories(int64_t* out, const T* weights, const T* running, int64_t samples, int64_t categories,
                    int64_t total, philox::Categories how, PhiloxPlace place) {
  philox::Stream stream(place);
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < total; i += int64_t(gridDim.x) * kThreads) {
    int64_t row = i / samples;
    out[i] = philox::category_of(weights + row * categories, running + row * categories, categories,
                                 how.unit_of(stream, row, i % samples));
  }
}
void draw_categories(const PhiloxCategories& c) {
  int64_t rows = c.out.sizes[0], samples = c.out.sizes[1], total = rows * samples;
  auto run = [&](auto t) {
    using T = decltype(t);
    launch("multinomial", c.out.device, blocks_in_turn(total), draw_categories<T>, c.out.template as<int64_t>(),
           c.weights.template as<const T>(), c.running.template as<const T>(), samples, c.weights.sizes[1], total,
           philox::Categories(rows, samples), c.place);
  };
  switch (c.weights.dtype) {
    case kFloat64: return run(double());
    case kFloat16: return run(Half());
    case kBFloat16: return run(BFloat16());
    default: return run(float());
  }
}

template <class K>
__global__ void __launch_bounds__(kThreads)
    shuffle_equals(const K* keys, int64_t* order, int64_t n, PhiloxPlace place) {
  philox::Stream stream(place);
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n; i += int64_t(gridDim.x) * kThreads)
    philox::shuffle_equals(stream, keys, order, n, i);
}
void shuffle_equals(const PhiloxShuffle& s) {
  int64_t n = s.order.numel();
  auto run = [&](auto k) {
    using K = decltype(k);
    launch("randperm", s.order.device, blocks_in_turn(n), shuffle_equals<K>, s.keys.template as<const K>(),
           s.order.template as<int64_t>(), n, s.place);
  };
  if (s.keys.dtype == kInt64) run(int64_t());
  else run(int32_t());
}

SF_KERNEL(philox_chances, DeviceType::CUDA, "native", 0, draw_chances, nullptr)
SF_KERNEL(philox_categories, DeviceType::CUDA, "native", 0, draw_categories, nullptr)
SF_KERNEL(philox_shuffle, DeviceType::CUDA, "native", 0, shuffle_equals, nullptr)
SF_KERNEL(philox_kernel, DeviceType::CUDA, "native", 0, draw, nullptr)

}  // namespace
}  // namespace sf::cuda
