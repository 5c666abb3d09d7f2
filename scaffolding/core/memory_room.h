// Room for memory under limits of the process (ulimit -v, ulimit -d). Asked before calls of libraries that do not
// survive an allocation that fails: oneDNN's primitives, OpenMP's threads. Functions only; thread-safe.
#pragma once
#include <cstddef>

namespace sf {

bool memory_is_limited();     // RLIMIT_AS or RLIMIT_DATA is set
bool room_for(size_t bytes);  // whether so much can be mapped now; another thread may take it the moment after
// OutOfMemory, as "who: ...", where memory is limited and there is no such room.
void require_room(size_t bytes, const char* who);

}  // namespace sf
