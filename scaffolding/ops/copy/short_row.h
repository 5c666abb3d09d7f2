// A row of bytes so short that a call of memcpy takes longer than its bytes.
#pragma once
#include <cstdint>
#include <cstring>

namespace sf {

inline constexpr int64_t kVector = 16, kShortRow = 512;

// kVector <= bytes. The last vector overlaps the one before it.
inline void copy_short_row(char* to, const char* from, int64_t bytes) {
  for (int64_t at = 0; at + kVector < bytes; at += kVector) std::memcpy(to + at, from + at, kVector);
  std::memcpy(to + bytes - kVector, from + bytes - kVector, kVector);
}

}  // namespace sf
