// Whether a call of a part is more than its own forward: hooks, a subclass in Python, a module put in its place, an
// adapter. A fused kernel must not go past it then.
#pragma once
#include "scaffolding/nn/module.h"

namespace sf::nn {

// Somebody wants to see its calls.
inline bool is_watched(const Module& m) { return m.has_hooks() || (m.extension() && m.extension()->calls()); }
inline bool is_looked_at(const Module& m) { return m.present() != &m || is_watched(m) || m.adapter(); }

}  // namespace sf::nn
