// What the server depends on does not answer now, and will again: clients are told to come back (503).
#pragma once
#include "scaffolding/core/error.h"

namespace sf::server {

struct Unavailable : RuntimeError {
  using RuntimeError::RuntimeError;
};

// No room for what has to be kept: 507. What is made waits for it.
struct StorageFull : Unavailable {
  StorageFull() : Unavailable("the disk is full on which the server keeps its jobs and pictures") {}
};

}  // namespace sf::server
