// Memory of networks between the phases of a call.
#pragma once
#include "scaffolding/diffusion/pipelines/components.h"

namespace sf::diffusion {

size_t weight_bytes(Component& network);  // of its parameters; 0 without a model

// Weights that are pages of a file need no memory from now on, nor what kernels packed of any: a network that comes
// later has it instead. The pages stay in the system's page cache as long as it has room, and are mapped again when
// they are touched. A network that is small enough to be kept whole (backend/cpu/lean_memory.h) keeps what was packed
// for the next picture, unless small_ones: where each phase is to have as little as possible.
void release_weight_pages(Component& network, bool small_ones);

}  // namespace sf::diffusion
