#include "scaffolding/io/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace sf::io {

void read_ahead(const void* data, uint64_t bytes) {
  constexpr uintptr_t kAtOnce = 4 << 20;  // of one call the kernel reads no more than its read-ahead
  static const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = first + bytes;
  if (bytes == 0) return;
  for (uintptr_t at = first / page * page; at < end; at += kAtOnce)
    madvise(reinterpret_cast<void*>(at), std::min(kAtOnce, end - at), MADV_WILLNEED);
}

bool read_pages(const void* data, uint64_t bytes) {
#ifdef __linux__
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, which older headers do not name
  static const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(data), from = first / page * page;
  return bytes == 0 || madvise(reinterpret_cast<void*>(from), first + bytes - from, kPopulateRead) == 0;
#else
  return bytes == 0 || !data;
#endif
}

}  // namespace sf::io
