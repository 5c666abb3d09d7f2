#include "scaffolding/io/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

namespace sf::io {

void read_ahead(const void* data, uint64_t bytes) {
  static const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t from = first / page * page, to = first + bytes;
  if (bytes > 0) madvise(reinterpret_cast<void*>(from), to - from, MADV_WILLNEED);
}

}  // namespace sf::io
