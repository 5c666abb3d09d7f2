// backend/cuda/cluster.cuh for the C++ compiler: the blocks of a cluster are run by grid.cpp together.
#pragma once
#include <cuda_runtime.h>

namespace sf::cuda {

inline unsigned cluster_rank() { return cuda_emulator::cluster_rank(); }
inline void arrive_at_cluster() {}
inline void arrive_without_writes() {}
inline void wait_for_cluster() { cuda_emulator::cluster_barrier(); }
template <class A> A read_of_cluster(const A* p, unsigned rank) {
  return *static_cast<const A*>(cuda_emulator::in_cluster(p, rank));
}

}  // namespace sf::cuda
