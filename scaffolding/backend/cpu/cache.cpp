#include "scaffolding/backend/cpu/cache.h"

#include <algorithm>

#include <unistd.h>

namespace sf::cpu {

int64_t stream_bytes() {
  static const int64_t bytes = [] {
    constexpr int64_t kMost = int64_t(40) << 20;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    int64_t last = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (last > 0) return std::min(kMost, last / 2);
#endif
    return kMost;
  }();
  return bytes;
}

}  // namespace sf::cpu
