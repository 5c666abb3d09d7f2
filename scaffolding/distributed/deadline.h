// Moments until which something is waited for.
#pragma once
#include <chrono>
#include <cstdint>

namespace sf::distributed {

using Deadline = std::chrono::steady_clock::time_point;

inline Deadline in_seconds(double seconds) {
  return std::chrono::steady_clock::now() + std::chrono::nanoseconds(int64_t(seconds * 1e9));
}
inline double seconds_to(Deadline deadline) {
  return std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
}

}  // namespace sf::distributed
