// Kernels with one thing wrong each, and the same with it right: what races.cpp must find, and what it must not.
#include "cuda_runtime.h"

namespace {

enum Fault {
  kNone,
  kNoBarrier,
  kNoWarpBarrier,
  kTwoBlocks,
  kNoFence,
  kTwoLanes,
  kOddAddress,
  kEarly,
  kNeverWaits,
  kFaults
};

// Neighbours exchange values through shared memory.
__global__ void reverse_block(float* data, bool waits) {
  __shared__ float all[64];
  all[threadIdx.x] = data[threadIdx.x];
  if (waits) __syncthreads();
  data[threadIdx.x] = all[63 - threadIdx.x];
}
__global__ void reverse_warp(float* data, bool waits) {
  __shared__ float all[32];
  all[threadIdx.x] = data[threadIdx.x];
  if (waits) __syncwarp();
  else __shfl_sync(~0u, 0.0f, 0);  // all lanes get here, but no memory is ordered
  data[threadIdx.x] = all[31 - threadIdx.x];
}
__global__ void write_word(float* data, bool apart) {
  if (threadIdx.x == 0) data[apart ? blockIdx.x : 0] = 1;
}
__global__ void write_lanes(float* data, bool apart) { data[apart ? threadIdx.x : threadIdx.x / 2] = 1; }

// The last block adds up what all blocks wrote: CUDA C++ Programming Guide, "Memory Fence Functions".
__global__ void sum_by_last_block(float* data, unsigned* count, bool fences) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    data[1 + blockIdx.x] = float(blockIdx.x);
    if (fences) __threadfence();
    is_last = atomicAdd(count, 1u) == gridDim.x - 1;
    if (fences) __threadfence();
  }
  __syncthreads();
  if (!is_last || threadIdx.x > 0) return;
  float sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += data[1 + b];
  data[0] = sum;
  *count = 0;
}

struct alignas(16) Four {
  float v[4];
};
__global__ void load_four(float* data, int from) {
  Four x = *reinterpret_cast<const Four*>(data + from);
  data[8] = x.v[0];
}

// Programmatic dependent launches: CUDA C++ Programming Guide.
__global__ void read_early(float* data, bool waits) {
  float x = waits ? 0 : data[threadIdx.x];
  cuda_emulator::wait_for_previous_grid();
  data[threadIdx.x] = x + 1;
}
__global__ void wait_where(float* data, unsigned threads) {
  if (threadIdx.x >= threads) return;
  cuda_emulator::wait_for_previous_grid();
  data[threadIdx.x] = 1;
}

template <class... P, class... A>
void start(cudaStream_t s, unsigned blocks, unsigned threads, void (*kernel)(P...), A... args) {
  cudaLaunchConfig_t c;
  c.gridDim = dim3(blocks), c.blockDim = dim3(threads), c.stream = s;
  cudaLaunchKernelEx(&c, kernel, args...);
}
template <class... P, class... A>
void start_dependent(cudaStream_t s, unsigned blocks, unsigned threads, void (*kernel)(P...), A... args) {
  cudaLaunchConfig_t c;
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  c.gridDim = dim3(blocks), c.blockDim = dim3(threads), c.stream = s, c.attrs = &early, c.numAttrs = 1;
  cudaLaunchKernelEx(&c, kernel, args...);
}

}  // namespace

// data: 64 floats and a count that is 0. fault: what is wrong, kNone for nothing; which: the kernel, by its fault.
extern "C" __attribute__((visibility("default"))) int sf_cuda_emulator_run_racing_kernel(int which, bool wrong,
                                                                                         float* data, unsigned* count,
                                                                                         cudaStream_t s) {
  switch (which) {
    case kNoBarrier: start(s, 1, 64, reverse_block, data, !wrong); break;
    case kNoWarpBarrier: start(s, 1, 32, reverse_warp, data, !wrong); break;
    case kTwoBlocks: start(s, 2, 32, write_word, data, !wrong); break;
    case kNoFence: start(s, 4, 32, sum_by_last_block, data, count, !wrong); break;
    case kTwoLanes: start(s, 1, 32, write_lanes, data, !wrong); break;
    case kOddAddress: start(s, 1, 1, load_four, data, wrong ? 1 : 4); break;
    case kEarly: start_dependent(s, 1, 64, read_early, data, !wrong); break;
    case kNeverWaits: start_dependent(s, 1, 64, wait_where, data, wrong ? 63u : 64u); break;
    default: return kFaults;
  }
  return 0;
}
