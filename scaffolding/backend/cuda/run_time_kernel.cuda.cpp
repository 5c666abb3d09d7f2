#include "scaffolding/backend/cuda/run_time_kernel.h"

#include <string>

#include "scaffolding/backend/cuda/device.h"
#include "scaffolding/backend/cuda/queued.h"
#include "scaffolding/backend/cuda/relaxed.h"

namespace sf::cuda {

KernelHandle load_kernel(const void* image, const char* entry) {
  const std::string op = std::string("kernel '") + entry + "'";
  Relaxed relaxed;                  // loading takes memory, and a kernel's first launch may be captured
  cudaLibrary_t library = nullptr;  // never unloaded: kernels may run until the process ends
  check(cudaLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0), op.c_str());
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library, entry), op.c_str());
  return kernel;
}

void launch_kernel(int device, KernelHandle kernel, const KernelLaunch& l, cudaStream_t stream, void** arguments,
                   const char* name) {
  constexpr unsigned kWithoutAsking = 48 << 10;  // bytes of shared memory that a block gets by default
  const char* op = interned(std::string("kernel '") + name + "'");
  if (l.shared_memory > kWithoutAsking)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(l.shared_memory)), op);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(l.grid[0], l.grid[1], l.grid[2]);
  config.blockDim = dim3(l.block[0], l.block[1], l.block[2]);
  config.dynamicSmemBytes = l.shared_memory;
  config.stream = stream;
  queued(cudaLaunchKernelExC(&config, kernel, arguments), op, device, stream);
}

}  // namespace sf::cuda
