// What orders memory, told to races.cpp: in place of the same names of device.h where kernels are compiled for it.
#pragma once

namespace cuda_emulator {
SF_EMULATOR_API void warp_barrier(unsigned mask);
SF_EMULATOR_API void fence();
// An access of all threads' own: while it lasts, those that the compiler reports are not counted.
struct Atomic {
  SF_EMULATOR_API Atomic(const void* at, unsigned long bytes);
  SF_EMULATOR_API ~Atomic();
};

template <class T> T add_atomically(T* at, T x) {
  Atomic now(at, sizeof *at);
  return atomicAdd(at, x);
}
template <class T> T swap_atomically(T* at, T expected, T x) {
  Atomic now(at, sizeof *at);
  return atomicCAS(at, expected, x);
}
inline void sync_warp(unsigned mask = ~0u) { warp_barrier(mask); }
}  // namespace cuda_emulator

#define __syncwarp cuda_emulator::sync_warp
#define __threadfence cuda_emulator::fence
#define atomicAdd cuda_emulator::add_atomically
#define atomicCAS cuda_emulator::swap_atomically
