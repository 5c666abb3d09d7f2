// Positions of elements that are not zero, on CUDA: counts of pieces, their places by running sums,
// then the positions, in order.
#include "scaffolding/backend/cuda/capture.h"
#include "scaffolding/backend/cuda/cub.h"
#include "scaffolding/backend/cuda/element.cuh"
#include "scaffolding/backend/cuda/launch.cuh"
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/ops/index/kernel.h"

namespace sf::cuda {
namespace {

constexpr int kRounds = 16, kPiece = kThreads * kRounds, kWarps = kThreads / 32;

struct Searched {
  const void* in;
  DType dtype;
  int64_t n;
  int32_t ndim;
  int64_t sizes[kMaxDims];
  int64_t* places;  // [pieces + 1]: counts of the pieces, then how many come before each, and all
  int64_t* positions;

  __device__ bool holds(int64_t i) const {
    return i < n && (is_floating(dtype) ? element<double>(in, dtype, i) != 0 : element<int64_t>(in, dtype, i) != 0);
  }
};

// How many of the block's threads up to this one have a flag, and how many in all. All threads call it together.
struct Ranked {
  int before, all;
};
__device__ inline Ranked ranked(bool flag) {
  __shared__ int of_warp[kWarps];
  int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  unsigned votes = __ballot_sync(~0u, flag);
  if (lane == 0) of_warp[warp] = __popc(votes);
  __syncthreads();
  Ranked r{__popc(votes & ((1u << lane) - 1)), 0};
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) r.before += of_warp[w];
    r.all += of_warp[w];
  }
  __syncthreads();
  return r;
}

__global__ void __launch_bounds__(kThreads) count_pieces(Searched s) {
  int64_t first = int64_t(blockIdx.x) * kPiece;
  int count = 0;
  for (int round = 0; round < kRounds; ++round) count += ranked(s.holds(first + round * kThreads + threadIdx.x)).all;
  if (threadIdx.x != 0) return;
  s.places[blockIdx.x] = count;
  if (blockIdx.x == 0) s.places[gridDim.x] = 0;  // where the sum of all comes to lie
}

__global__ void __launch_bounds__(kThreads) write_positions(Searched s) {
  int64_t first = int64_t(blockIdx.x) * kPiece, found = s.places[blockIdx.x];
  for (int round = 0; round < kRounds; ++round) {
    int64_t i = first + round * kThreads + threadIdx.x;
    bool holds = s.holds(i);
    Ranked r = ranked(holds);
    if (holds) {
      int64_t* to = s.positions + (found + r.before) * s.ndim;
      for (int d = s.ndim - 1; d >= 0; --d) {
        to[d] = i % s.sizes[d];
        i /= s.sizes[d];
      }
    }
    found += r.all;
  }
}

void nonzero(const NonZero& k) {
  Device device = k.in.device;
  Searched s{k.in.data, k.in.dtype, k.in.numel(), k.in.ndim, {}, nullptr, k.positions};
  for (int d = 0; d < k.in.ndim; ++d) s.sizes[d] = k.in.sizes[d];
  int64_t pieces = (s.n + kPiece - 1) / kPiece;
  if (pieces == 0) {
    *k.count = 0;
    return;
  }
  Scratch places(device, size_t(pieces + 1) * sizeof(int64_t));
  s.places = places.as<int64_t>();
  launch("nonzero", device, unsigned(pieces), count_pieces, s);
  exclusive_sum("nonzero", device, s.places, pieces + 1);
  if (k.positions) return launch("nonzero", device, unsigned(pieces), write_positions, s);
  refuse_while_capturing("nonzero", "a result whose shape depends on values");
  DeviceScope scope(device.index);
  Stream stream = Stream::current(device.index);
  check(cudaMemcpyAsync(k.count, s.places + pieces, sizeof(int64_t), cudaMemcpyDeviceToHost, stream.handle), "nonzero");
  stream.synchronize();  // the result's shape depends on it
}
SF_KERNEL(nonzero_kernel, DeviceType::CUDA, "native", 0, nonzero,
          [](const NonZero& k) { return !is_float8(k.in.dtype) && k.in.numel() <= INT64_C(1) << 40; })

}  // namespace
}  // namespace sf::cuda
