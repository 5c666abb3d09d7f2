// backend/cuda/previous_grid.cuh for the C++ compiler: grid.cpp knows which threads have waited.
#pragma once
#include <cuda_runtime.h>

#include <type_traits>

namespace sf::cuda {

struct PreviousGrid {
  void wait() const { cuda_emulator::wait_for_previous_grid(); }
};

template <class... P> inline constexpr bool kWaitsForPrevious = (std::is_same_v<P, PreviousGrid> || ...);

}  // namespace sf::cuda
