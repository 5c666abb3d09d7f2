// Whether kernels of a GPU may start before the one that they follow has ended (CUDA's programmatic dependent launch).
// Process-wide; any thread may ask and set.
#pragma once

namespace sf {

// Kernels that wait for the one before by themselves (backend/cuda/previous_grid.cuh) are started early on GPUs of
// compute capability 9.0 and later, in captured graphs too. SF_CUDA_PDL at first: off or on.
bool dependent_launches();
void set_dependent_launches(bool on);

}  // namespace sf
