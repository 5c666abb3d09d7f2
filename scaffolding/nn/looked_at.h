// Whether anybody wants to see the calls of a part (hooks, a subclass in Python, a module put in its place): a fused
// kernel must not go past it then.
#pragma once
#include "scaffolding/nn/module.h"

namespace sf::nn {

inline bool is_looked_at(const Module& m) {
  return m.present() != &m || m.has_hooks() || (m.extension() && m.extension()->calls());
}

}  // namespace sf::nn
