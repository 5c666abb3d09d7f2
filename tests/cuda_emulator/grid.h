// Runs a grid: block after block, the threads of a block in turns.
#pragma once
#include <functional>

#include "cuda_runtime_api.h"

namespace cuda_emulator {

struct Grid {
  dim3 blocks, threads;
  size_t shared = 0;       // bytes of dynamic shared memory of a block
  unsigned cluster = 1;    // blocks that run together
  bool dependent = false;  // may start before the kernel in front of it has ended: all threads must wait for that
};
// Calls kernel once per thread of the grid and returns when all have ended. reverse: last block and last thread first;
// what a kernel computes must not depend on it. One grid at a time. False where a thread trapped: the rest of the grid
// did not run then.
bool run_grid(const Grid& grid, const std::function<void()>& kernel, bool reverse);

// SF_CUDA_EMULATOR_BLOCKS=ends: of a grid the first two and the last two blocks run, of a copy its ends, and memory is
// as large as asked for: indices of tensors with billions of elements, in no time.
bool only_ends();

// Dynamic shared memory that a block may ask for on any GPU: 227 KiB, on compute capabilities 9.0 and 10.0.
inline constexpr size_t kMostShared = 227 << 10;
inline constexpr unsigned kMostOfCluster = 8;  // blocks, on any GPU that has clusters

__attribute__((visibility("default"))) void warp_barrier(unsigned mask);  // __syncwarp where races are looked for
bool is_dynamic_shared(const void*);
unsigned thread_in_cluster();  // the one that runs
void refuse_before_wait();     // stops where the thread may not touch device memory yet
bool block_has_ended(unsigned rank);
// The thread goes on once condition() holds, which is asked again whenever others have run.
void park_until(const std::function<bool()>& condition);
void let_others_run();                              // every other warp, as far as it gets
bool is_device_memory(uintptr_t at, size_t bytes);  // some of it; of runtime.cpp

[[noreturn]] void stop(const char* why);  // says which block and thread, and aborts

}  // namespace cuda_emulator
