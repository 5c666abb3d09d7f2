#include "scaffolding/backend/precision.h"

#include <atomic>
#include <string_view>

#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"

namespace sf {

static std::atomic<Float32Precision> g_precision{Float32Precision::Highest};
static std::atomic<bool> g_matmul_benchmark{false};
static constexpr const char* kNames[] = {"highest", "high", "medium"};

Float32Precision float32_matmul_precision() { return g_precision.load(std::memory_order_relaxed); }
void set_float32_matmul_precision(Float32Precision precision) {
  g_precision.store(precision, std::memory_order_relaxed);
}
void set_float32_matmul_precision(const char* name) {
  for (int i = 0; i < 3; ++i)
    if (std::string_view(name) == kNames[i]) return set_float32_matmul_precision(Float32Precision(i));
  SF_CHECK(false, "set_float32_matmul_precision: must be highest, high or medium, got '", name, "'");
}
const char* name_of(Float32Precision precision) { return kNames[int(precision)]; }

bool matmul_allow_tf32() { return float32_matmul_precision() != Float32Precision::Highest; }
void set_matmul_allow_tf32(bool allow) {
  if (allow != matmul_allow_tf32())
    set_float32_matmul_precision(allow ? Float32Precision::High : Float32Precision::Highest);
}
bool matmul_benchmark() { return g_matmul_benchmark.load(std::memory_order_relaxed); }
void set_matmul_benchmark(bool benchmark) { g_matmul_benchmark.store(benchmark, std::memory_order_relaxed); }

static std::atomic<WarpgroupProducts>& where_warpgroups() {
  static std::atomic<WarpgroupProducts> where = [] {
    const std::string given = env::text("SF_CUDA_WGMMA");
    if (given == "off") return WarpgroupProducts::Off;
    if (given == "timed") return WarpgroupProducts::Timed;
    SF_CHECK(given == "on", "SF_CUDA_WGMMA: must be off, timed or on, got '", given, "'");
    return WarpgroupProducts::On;
  }();
  return where;
}
WarpgroupProducts warpgroup_products() { return where_warpgroups().load(std::memory_order_relaxed); }
void set_warpgroup_products(WarpgroupProducts where) { where_warpgroups().store(where, std::memory_order_relaxed); }

static std::atomic<uint64_t> g_warpgroup_tile{1ull << 32};  // rows, columns and blocks, 16 bits each
WarpgroupTile warpgroup_tile() {
  const uint64_t t = g_warpgroup_tile.load(std::memory_order_relaxed);
  return {int(t & 0xffff), int(t >> 16 & 0xffff), int(t >> 32)};
}
void set_warpgroup_tile(WarpgroupTile t) {
  g_warpgroup_tile.store(uint64_t(t.rows) | uint64_t(t.columns) << 16 | uint64_t(t.cluster) << 32,
                         std::memory_order_relaxed);
}

}  // namespace sf
