#include "scaffolding/backend/dependent_launches.h"

#include <atomic>
#include <string>

#include "scaffolding/core/env.h"
#include "scaffolding/core/error.h"

namespace sf {

static std::atomic<bool>& are_dependent() {
  static std::atomic<bool> are = [] {
    const std::string given = env::text("SF_CUDA_PDL");
    SF_CHECK(given == "off" || given == "on", "SF_CUDA_PDL: must be off or on, got '", given, "'");
    return given == "on";
  }();
  return are;
}
bool dependent_launches() { return are_dependent().load(std::memory_order_relaxed); }
void set_dependent_launches(bool on) { are_dependent().store(on, std::memory_order_relaxed); }

}  // namespace sf
