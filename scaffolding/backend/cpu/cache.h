// Sizes that depend on the processor's caches. Any thread.
#pragma once
#include <cstdint>

namespace sf::cpu {

// Bytes of output from which kernels write past the caches: half of the last level, where what an op reads and writes
// does not stay anyway, and at most 40 MiB. Copying 84 MB so runs at 66 instead of 51 GB/s (2 cores of Zen 5, 32 MB
// L3); outputs that the cache would keep are better left to it.
int64_t stream_bytes();

}  // namespace sf::cpu
