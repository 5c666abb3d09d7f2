// Runs a grid: block after block, the threads of a block in turns.
#pragma once
#include <functional>

#include "cuda_runtime_api.h"

namespace cuda_emulator {

// Calls kernel once per thread of the grid and returns when all have ended. reverse: last block and last thread first; what a
// kernel computes must not depend on it. shared: bytes of dynamic shared memory of a block. One grid at a time.
void run_grid(const dim3& grid, const dim3& block, size_t shared, const std::function<void()>& kernel, bool reverse);

// Dynamic shared memory that a block may ask for: 227 KiB, as on compute capability 9.0.
inline constexpr size_t kMostShared = 227 << 10;

[[noreturn]] void stop(const char* why);  // says which block and thread, and aborts

}  // namespace cuda_emulator
