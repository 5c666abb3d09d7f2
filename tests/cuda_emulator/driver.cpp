// In place of backend/cuda/driver.cuda.cpp: the emulator needs no driver.
#include "scaffolding/backend/cuda/driver.h"

namespace sf::cuda {

void require_driver() {}

}  // namespace sf::cuda
