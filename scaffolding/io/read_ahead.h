// Pages of mapped files that are wanted soon, and whether they are still there.
#pragma once
#include <cstdint>

namespace sf::io {

// Begins to read these bytes of a mapped file, without waiting. Other memory stays as it is.
void read_ahead(const void* data, uint64_t bytes);

// RuntimeError where the file whose mapped bytes these are is shorter than it was, or was written since it was mapped:
// touching a page that is gone would end the program. Nothing for other memory, and for a file that lies elsewhere now.
void refuse_changed(const void* data);

}  // namespace sf::io
