// What the server depends on does not answer now, and will again: clients are told to come back (503).
#pragma once
#include "scaffolding/core/error.h"

namespace sf::server {

struct Unavailable : RuntimeError {
  using RuntimeError::RuntimeError;
};

}  // namespace sf::server
