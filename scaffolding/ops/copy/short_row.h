// A row of bytes so short that a call of memcpy takes longer than its bytes.
#pragma once
#include <cstdint>
#include <cstring>

namespace sf {

inline constexpr int64_t kLeastShortRow = 16, kMostShortRow = 512;  // bytes

// In vectors, the last of which overlaps the one before it.
inline void copy_short_row(char* to, const char* from, int64_t bytes) {
  constexpr int64_t kStep = kLeastShortRow;
  for (int64_t at = 0; at + kStep < bytes; at += kStep) std::memcpy(to + at, from + at, kStep);
  std::memcpy(to + bytes - kStep, from + bytes - kStep, kStep);
}

}  // namespace sf
