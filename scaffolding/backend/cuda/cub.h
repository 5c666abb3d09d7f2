// CUB's algorithms over the whole device, all of them instantiated in cub.cu: its headers take seconds to compile and
// every dtype would be another copy of its kernels, so that callers bring plain keys. On the current stream, temporary
// memory from the caching allocator; part of a captured graph like any kernel.
#pragma once
#include "scaffolding/core/device.h"

namespace sf::cuda {

// Rows of unsigned keys of 2, 4 or 8 bytes, each with 32 bits beside it.
struct KeyedRows {
  void *keys, *other_keys;  // [rows, n]; both are overwritten
  uint32_t *at, *other_at;  // [rows, n]; both are overwritten
  int key_bytes, bits;      // keys are compared by their lowest `bits` bits
  int64_t rows, n;          // n < 2^31 - 1
};
// Each row by rising keys; equal keys keep their order. Returns where the second halves of the pairs are then:
// at or other_at.
const uint32_t* sort_rows(const char* op, Device device, const KeyedRows& r);

// data[i] becomes the sum of all before it. Sums of integers do not depend on the order in which CUB's blocks add;
// those of floats would.
void exclusive_sum(const char* op, Device device, int64_t* data, int64_t n);

}  // namespace sf::cuda
