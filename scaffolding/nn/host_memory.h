// Giving host memory back to the system.
#pragma once
#include "scaffolding/nn/module.h"

namespace sf::nn {

// What m can do without: packed copies of its weights (the next forward makes them anew), the calling thread's scratch
// memory, freed blocks that the allocators keep, pinned ones too, and what malloc keeps (malloc_trim).
void release_host_memory(Module& m);

}  // namespace sf::nn
