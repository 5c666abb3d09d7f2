// What NVRTC compiles are binaries for GPUs: there is nothing here that could run one.
#include "scaffolding/backend/cuda/run_time_kernel.h"

namespace sf::cuda {

KernelHandle load_kernel(const void*, const char* entry) {
  fail<NotSupported>("kernel '", entry, "': the CUDA emulator runs no kernels from source; use an NVIDIA GPU");
}
void launch_kernel(KernelHandle, const KernelLaunch&, cudaStream_t, void**, const char* name) {
  fail<NotSupported>("kernel '", name, "': the CUDA emulator runs no kernels from source; use an NVIDIA GPU");
}

}  // namespace sf::cuda
