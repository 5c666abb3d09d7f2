// The choice of a stream that outlasts a scope: Python's `with` blocks end where they like.
#pragma once
#include "scaffolding/backend/cuda/stream.h"

namespace sf::cuda {

void set_current(Stream stream);  // of the calling thread, on stream.device

}  // namespace sf::cuda
