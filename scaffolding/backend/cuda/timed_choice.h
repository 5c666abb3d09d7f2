// Which of two ways a call takes, a kernel of our own or a library: measured at the first call of its kind and
// remembered in a file of SF_KERNEL_CACHE, as cuBLASLt's algorithms are.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "scaffolding/core/device.h"

namespace sf::cuda {

// What a call's time depends on; the first number tells ops apart.
using CallKind = std::array<int64_t, 32>;

struct TimedCall {
  const char* op;
  Device device;
  CallKind kind;
  // What the file's name is made from, besides the kind and the GPU's name: versions of what is compared.
  std::function<std::string()> versions;
  std::function<void()> ours, library;  // each writes the result, the same each time
};

// Whether ours is faster. False, and not remembered, where nothing may be measured: while a graph is captured, and
// unless backends.cuda.matmul.benchmark is on.
bool is_faster(const TimedCall& call);

}  // namespace sf::cuda
