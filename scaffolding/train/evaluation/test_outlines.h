// Outlines that no two of which are taken for each other, for tests of judges.
#pragma once
#include <cmath>
#include <cstdint>

namespace sf::train::test {

inline constexpr int64_t kOutlines = 12;
// Whether a place, from -0.5 to 0.5 either way, is within outline 0 to kOutlines - 1.
inline bool in_outline(int64_t outline, double u, double v) {
  const double r = std::hypot(u, v), across = std::abs(u), down = std::abs(v);
  const bool shapes[kOutlines] = {r < 0.45,
                                  across < 0.4 && down < 0.4,
                                  across + down < 0.45,
                                  -0.4 < v && across < (v + 0.4) / 2,
                                  r < 0.45 && r > 0.2,
                                  across < 0.15 && down < 0.45,
                                  across < 0.45 && down < 0.15,
                                  across < 0.12 || down < 0.12,
                                  r < 0.45 && v < 0,
                                  v < 0.4 && across < (0.4 - v) / 2,
                                  std::abs(u - v) < 0.15 && r < 0.5,
                                  std::abs(across - 0.25) < 0.12 && down < 0.4 && v * u < 0.02};
  return shapes[outline];
}

}  // namespace sf::train::test
