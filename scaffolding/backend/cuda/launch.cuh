// launch: a kernel on the current stream of a device, with the op's name in the error.
#pragma once
#include <cuda_runtime.h>

#include "scaffolding/backend/cuda/previous_grid.cuh"
#include "scaffolding/backend/cuda/queued.h"
#include "scaffolding/backend/cuda/stream.h"

namespace sf::cuda {

inline constexpr int kThreads = 256;  // of a block: eight warps, and up to 255 registers a thread still fit

// Blocks of kThreads that cover n items, per_thread each. n < 2^31 keeps the number below the grid's limit.
constexpr unsigned blocks_for(int64_t n, int per_thread) {
  return unsigned((n + int64_t(kThreads) * per_thread - 1) / (int64_t(kThreads) * per_thread));
}

struct Blocks {
  unsigned count;
  unsigned threads = kThreads;  // of a block
  size_t shared = 0;            // bytes of dynamic shared memory of a block
  unsigned cluster = 1;         // blocks that run together, which divide `count` (cluster.cuh)
};

// op: a literal. A kernel whose last parameter is a PreviousGrid gets one, and may start before the kernel in front of
// it has ended.
template <class... P, class... A>
void launch(const char* op, Device device, Blocks blocks, void (*kernel)(P...), A&&... args) {
  DeviceScope scope(device.index);
  if (blocks.shared > 48 << 10)
    allow_shared(reinterpret_cast<const void*>(kernel), int(blocks.shared), device.index, op);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks.count);
  config.blockDim = dim3(blocks.threads);
  config.dynamicSmemBytes = blocks.shared;
  config.stream = Stream::current(device.index).handle;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (blocks.cluster > 1) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim = {blocks.cluster, 1, 1};
  }
  if constexpr (kWaitsForPrevious<P...>) {
    if (starts_early(device.index)) {
      cudaLaunchAttribute& a = attributes[config.numAttrs++];
      a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      a.val.programmaticStreamSerializationAllowed = 1;
    }
    queued(cudaLaunchKernelEx(&config, kernel, static_cast<A&&>(args)..., PreviousGrid()), op, device.index,
           config.stream);
  } else {
    queued(cudaLaunchKernelEx(&config, kernel, static_cast<A&&>(args)...), op, device.index, config.stream);
  }
}
template <class... P, class... A>
void launch(const char* op, Device device, unsigned blocks, void (*kernel)(P...), A&&... args) {
  launch(op, device, Blocks{blocks}, kernel, static_cast<A&&>(args)...);
}

}  // namespace sf::cuda
