// Clusters of blocks that run at the same time and read each other's shared memory (compute capability 9.0 and later;
// Blocks::cluster of launch.cuh). A block launched without is a cluster of its own, on older GPUs too.
// A kernel with clusters has its shared memory from the launch: its blocks stand in one place then.
// tests/cuda_emulator has another text of this header for the C++ compiler.
#pragma once
#include <cuda_runtime.h>

#include <type_traits>

namespace sf::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
__device__ inline unsigned cluster_rank() { return 0; }
__device__ inline void arrive_at_cluster() {}
__device__ inline void arrive_without_writes() {}
__device__ inline void wait_for_cluster() { __syncthreads(); }
template <class A> __device__ inline A read_of_cluster(const A* p, unsigned) { return *p; }
#else
// Of the block in its cluster.
__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The two halves of a barrier of all threads of the cluster: what a thread wrote before it arrived,
// all may read after they waited.
__device__ inline void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
// The same by a thread that wrote nothing which others read: half a microsecond sooner, since no write is waited for.
__device__ inline void arrive_without_writes() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ inline void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// What block `rank` has at the place in its shared memory where this block has *p. It must not have ended.
template <class A> __device__ inline A read_of_cluster(const A* p, unsigned rank) {
  static_assert(std::is_same_v<A, float> || std::is_same_v<A, double>);
  unsigned at = unsigned(__cvta_generic_to_shared(p)), there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
  A x;
  if constexpr (sizeof(A) == 4) asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(there) : "memory");
  else asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(x) : "r"(there) : "memory");
  return x;
}
#endif

}  // namespace sf::cuda
