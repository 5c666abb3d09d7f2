#include "scaffolding/backend/precision.h"

#include <atomic>

namespace sf {

static std::atomic<bool> g_matmul_tf32{false}, g_matmul_benchmark{false};

bool matmul_allow_tf32() { return g_matmul_tf32.load(std::memory_order_relaxed); }
void set_matmul_allow_tf32(bool allow) { g_matmul_tf32.store(allow, std::memory_order_relaxed); }
bool matmul_benchmark() { return g_matmul_benchmark.load(std::memory_order_relaxed); }
void set_matmul_benchmark(bool benchmark) { g_matmul_benchmark.store(benchmark, std::memory_order_relaxed); }

}  // namespace sf
