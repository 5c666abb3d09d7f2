// Pages of host memory that may be read only, until somebody says that he writes them. A mapped file has them where
// pages that could be written would count as memory of this process: under RLIMIT_DATA, and without overcommit.
#pragma once
#include <cstddef>

namespace sf {
class Tensor;
}

namespace sf::cpu {

void seal(const void* data, size_t bytes);  // whole pages, mapped read-only
void forget_seal(const void* data);         // they are unmapped

// To be called before bytes that may be of a file are written by other means than an op. OutOfMemory where a limit
// leaves no room for them. Costs nothing where nothing is sealed; thread-safe.
void will_write(const void* data, size_t bytes);
void will_write(const Tensor& t);  // an absent tensor passes

}  // namespace sf::cpu
