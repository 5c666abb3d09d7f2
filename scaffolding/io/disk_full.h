// What writing a file throws where there is no room for it: the caller can wait, where other errors last.
#pragma once
#include "scaffolding/core/error.h"

namespace sf::io {

struct DiskFull : RuntimeError {
  using RuntimeError::RuntimeError;
};

}  // namespace sf::io
