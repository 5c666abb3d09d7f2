// What nvcc and NVRTC know of device code without a header: qualifiers, threadIdx, barriers, warp shuffles, atomics,
// intrinsics, here for a C++ compiler. A kernel is an ordinary function that grid.cpp calls once per thread of the
// grid. Only what the sources use is here. Includes nothing of the host's, so that a kernel from source that needs a
// header fails here as there.
#pragma once
#include "dimensions.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static  // one block runs at a time; those of a cluster must not have any
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

#define SF_EMULATOR_API __attribute__((visibility("default")))

namespace cuda_emulator {
using Word = unsigned long;  // of 8 bytes

SF_EMULATOR_API void block_barrier();
// Gives the calling thread's value to its warp and returns that of lane `from` (its own where there is no such thread).
SF_EMULATOR_API Word exchange(unsigned mask, Word value, unsigned from);
SF_EMULATOR_API unsigned ballot(unsigned mask, bool value);
SF_EMULATOR_API unsigned char* dynamic_shared();
SF_EMULATOR_API unsigned long dynamic_shared_bytes();
SF_EMULATOR_API unsigned lane();
SF_EMULATOR_API void cluster_barrier();
SF_EMULATOR_API void wait_for_previous_grid();  // griddepcontrol.wait
SF_EMULATOR_API unsigned cluster_rank();        // of the block in its cluster
// Where block `rank` of the cluster has what this block has at p, in its dynamic shared memory.
SF_EMULATOR_API const void* in_cluster(const void* p, unsigned rank);
[[noreturn]] SF_EMULATOR_API void stop(const char* why);  // says which block and thread, and aborts
[[noreturn]] SF_EMULATOR_API void trap();                 // ends the grid; the context is broken from then on

template <class T> T exchanged(unsigned mask, T value, unsigned from) {
  static_assert(sizeof(T) <= sizeof(Word));
  Word bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, from);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
}  // namespace cuda_emulator

SF_EMULATOR_API extern uint3 threadIdx, blockIdx;
SF_EMULATOR_API extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

inline void __threadfence_system() {}
inline void __syncthreads() { cuda_emulator::block_barrier(); }
inline void __syncwarp(unsigned mask = ~0u) { cuda_emulator::exchange(mask, 0, 0); }
// Rounded, never contracted to a fused multiply-add.
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
template <class T> T __shfl_sync(unsigned mask, T x, int from) {
  return cuda_emulator::exchanged(mask, x, unsigned(from) % 32);
}
template <class T> T __shfl_xor_sync(unsigned mask, T x, int with) {
  return cuda_emulator::exchanged(mask, x, cuda_emulator::lane() ^ unsigned(with));
}
template <class T> T __shfl_down_sync(unsigned mask, T x, unsigned by) {
  return cuda_emulator::exchanged(mask, x, cuda_emulator::lane() + by);
}
template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned by) {
  return cuda_emulator::exchanged(mask, x, cuda_emulator::lane() - by);
}
inline unsigned __ballot_sync(unsigned mask, int x) { return cuda_emulator::ballot(mask, x != 0); }
inline int __any_sync(unsigned mask, int x) { return __ballot_sync(mask, x) != 0; }

// Threads take turns, so that nothing comes between the reading and the writing.
template <class T> T atomicAdd(T* at, T x) {
  T old = *at;
  *at = T(old + x);
  return old;
}
template <class T> T atomicCAS(T* at, T expected, T x) {
  T old = *at;
  if (old == expected) *at = x;
  return old;
}

inline void __trap() { cuda_emulator::trap(); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)(a)*b >> 32); }
#ifdef SF_EMULATOR_RACES
#include "device_races.h"
#endif
