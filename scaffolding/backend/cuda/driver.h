// What is asked of NVIDIA's driver itself: whether it is here, before the first call of the CUDA runtime, which GPUs
// this process uses already, and functions that the runtime has no name for.
#pragma once

namespace sf::cuda {

// RuntimeError with the loader's reason when libcuda.so.1 cannot be opened.
void require_driver();
// Whether this process has a context on that GPU, by whomever. To ask makes none.
bool has_context(int device);
// null where there is no driver or it has none of that name
void* driver_function(const char* name);

}  // namespace sf::cuda
