// Memory of networks between the phases of a call.
#pragma once
#include "scaffolding/diffusion/pipelines/components.h"

namespace sf::diffusion {

// Weights that are pages of a file need no memory from now on, nor what kernels packed of any: a network that comes
// later has it instead. The pages stay in the system's page cache as long as it has room, and are mapped again when
// they are touched.
void release_weight_pages(Component& network);

}  // namespace sf::diffusion
