// Kernels that were compiled while the program runs, on the current device of the calling thread, which is `device`.
#pragma once
#include <cuda_runtime_api.h>

#include "scaffolding/backend/accelerator.h"

namespace sf::cuda {

KernelHandle load_kernel(const void* image, const char* entry);  // RuntimeError when this GPU cannot run the image
void launch_kernel(int device, KernelHandle kernel, const KernelLaunch& l, cudaStream_t stream, void** arguments,
                   const char* name);

}  // namespace sf::cuda
