// PreviousGrid: what a kernel takes as its last parameter that may start before the kernel in front of it on the stream
// has ended (CUDA's programmatic dependent launch, compute capability 9.0 and later). launch() starts kernels early
// which take one, and no others, so that none can be without the wait.
//
// What is asked of such a kernel, after the PTX ISA (griddepcontrol) and the CUDA programming guide:
// - wait() holds the thread until all grids that this one depends on have ended and what they wrote can be seen. Before
//   it no global memory may be read or written, tables, seeds and counters included: an earlier grid may write what is
//   read there, or still read what would be written. Parameters, indices and shared memory are free.
// - All threads wait, those too that have nothing to do. A thread sees what it waited for itself; and a grid of which
//   nobody waits could end first, so that the grid behind it, which waits for that one alone, would run beside the grid
//   in front of it.
// - Right behind the wait the thread lets the next grid come. That starts nothing before every block of this grid is
//   here or has ended, so that a grid which comes early takes no room from blocks of this one; and since they all had
//   waited, one grid at most is ahead. What this grid writes meanwhile the next one sees nonetheless: its wait is for
//   the end of this grid, whenever it was let in.
// - A kernel that is launched without the attribute, or behind a copy, finds nothing to wait for.
// tests/cuda_emulator has another text of this header for the C++ compiler.
#pragma once
#include <cuda_runtime.h>

#include <type_traits>

namespace sf::cuda {

struct PreviousGrid {
  __device__ void wait() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");  // no access moves in front of it
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  }
};

template <class... P> inline constexpr bool kWaitsForPrevious = (std::is_same_v<P, PreviousGrid> || ...);

}  // namespace sf::cuda
