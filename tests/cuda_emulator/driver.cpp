// In place of backend/cuda/driver.cuda.cpp: the emulator needs no driver.
#include "scaffolding/backend/cuda/driver.h"

#include "streams.h"

namespace sf::cuda {

void require_driver() {}
bool has_context(int device) { return cuda_emulator::has_context(device); }

}  // namespace sf::cuda
