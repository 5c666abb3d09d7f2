// Whether NVIDIA's driver is here: asked before the first call of the CUDA runtime.
#pragma once

namespace sf::cuda {

// RuntimeError with the loader's reason when libcuda.so.1 cannot be opened.
void require_driver();

}  // namespace sf::cuda
