#include "scaffolding/core/memory_room.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "scaffolding/core/out_of_memory.h"

namespace sf {

bool memory_is_limited() {
  for (auto what : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit;
    if (getrlimit(what, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return true;
  }
  return false;
}

bool room_for(size_t bytes) {
  if (bytes == 0) return true;
  // writable: RLIMIT_DATA counts no other pages
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  munmap(p, bytes);
  return true;
}

void require_room(size_t bytes, const char* who) {
  SF_CHECK_AS(OutOfMemory, !memory_is_limited() || room_for(bytes), who,
              ": out of memory: ", (unsigned long)(bytes >> 20),
              " MiB asked for, beside what is taken; a limit of this process (ulimit -v, ulimit -d) may be too low");
}

}  // namespace sf
