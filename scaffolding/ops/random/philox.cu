// torch's CUDA numbers on CUDA: the launch is torch's own, so that every element comes from the same thread and round (philox_numbers.h).
#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/extent.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/ops/random/philox_numbers.h"

namespace sf::cuda {
namespace {

template <class N> __global__ void __launch_bounds__(kThreads) draw_numbers(N numbers, PhiloxDraw d) {
  int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  uint64_t seed = d.replay ? d.replay[0] : d.seed, counter = d.counter + (d.replay ? d.replay[1] : 0);
  for (int64_t round = 0; round < d.rounds; ++round) {
    philox::Words w = philox::words(counter + uint64_t(round), uint64_t(thread), seed);
#pragma unroll
    for (int lane = 0; lane < N::lanes; ++lane) {
      int64_t i = (round * N::lanes + lane) * d.threads + thread;
      if (i >= d.n) continue;
      auto x = numbers(lane, w);
      if constexpr (std::is_same_v<decltype(x), int64_t>) {
        if (d.dtype == kBool) static_cast<bool*>(d.out)[i] = x != 0;
        else set_element(d.out, d.dtype, i, x);
      } else {
        static_cast<decltype(x)*>(d.out)[i] = x;
      }
    }
  }
}

void draw(const PhiloxDraw& d) {
  philox::visit_numbers(
      d, [&](auto numbers) { launch("random", device_of(d.out, "random"), unsigned(d.threads / kThreads), draw_numbers<decltype(numbers)>, numbers, d); });
}

SF_KERNEL(philox_kernel, DeviceType::CUDA, "native", 0, draw, nullptr)

}  // namespace
}  // namespace sf::cuda
