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
std::atomic<int> g_scopes{0};
}

LeanMemory::LeanMemory() { ++g_scopes; }
LeanMemory::~LeanMemory() { --g_scopes; }
bool LeanMemory::active() { return g_scopes > 0; }

void LeanMemory::give_back() {
  forget_packed(nullptr, SIZE_MAX);
  trim_scratch();
  empty_cache();
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace sf::cpu
