#include "scaffolding/backend/cpu/lean_memory.h"

#include <atomic>
#include <cstdint>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/cpu/packed_weights.h"
#include "scaffolding/core/scratch.h"

namespace sf::cpu {

namespace {
std::atomic<int> g_scopes{0}, g_small{0};
constexpr size_t kFewPacked = size_t(24) << 20, kSmallModel = size_t(64) << 20, kMuch = size_t(192) << 20;
constexpr size_t kSmallPacked =
    2 * kSmallModel;  // bfloat16 and float16 are packed as float32 where no unit multiplies them
}  // namespace

LeanMemory::LeanMemory() { ++g_scopes; }
LeanMemory::~LeanMemory() { --g_scopes; }
bool LeanMemory::active() { return g_scopes > 0; }
bool LeanMemory::keeps_few() { return g_scopes > 0 && g_small == 0; }
size_t LeanMemory::most_packed() { return g_scopes == 0 ? SIZE_MAX : g_small > 0 ? kSmallPacked : kFewPacked; }

bool KeptWhole::takes(size_t bytes) { return bytes <= kSmallModel; }
KeptWhole::KeptWhole(size_t bytes) : small_(takes(bytes)) {
  if (small_) ++g_small;
}
KeptWhole::~KeptWhole() {
  if (small_) --g_small;
}

void LeanMemory::give_back() {
  forget_packed(nullptr, SIZE_MAX);
  trim_scratch();
  empty_cache();
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

void LeanMemory::give_back_much() {
  if (packed_total() + cached_bytes() > kMuch) give_back();
}

}  // namespace sf::cpu
