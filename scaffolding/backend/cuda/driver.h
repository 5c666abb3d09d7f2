// What is asked of NVIDIA's driver itself: whether it is here, before the first call of the CUDA runtime, and which
// GPUs this process uses already.
#pragma once

namespace sf::cuda {

// RuntimeError with the loader's reason when libcuda.so.1 cannot be opened.
void require_driver();
// Whether this process has a context on that GPU, by whomever. To ask makes none.
bool has_context(int device);

}  // namespace sf::cuda
