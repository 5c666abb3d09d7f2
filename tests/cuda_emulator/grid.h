// Runs a grid: block after block, the threads of a block in turns.
#pragma once
#include <functional>

#include "cuda_runtime_api.h"

namespace cuda_emulator {

// Calls kernel once per thread of the grid and returns when all have ended. reverse: last block and last thread first; what a
// kernel computes must not depend on it. One grid at a time.
void run_grid(const dim3& grid, const dim3& block, const std::function<void()>& kernel, bool reverse);

[[noreturn]] void stop(const char* why);  // says which block and thread, and aborts

}  // namespace cuda_emulator
