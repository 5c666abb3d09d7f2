// Telling the system which pages of mapped files are wanted soon.
#pragma once
#include <cstdint>

namespace sf::io {

// Begins to read these bytes of a mapped file, without waiting. Other memory stays as it is.
void read_ahead(const void* data, uint64_t bytes);

}  // namespace sf::io
