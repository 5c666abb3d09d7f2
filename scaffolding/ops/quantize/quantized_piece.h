// How many numbers of a weight become float32 at once while it is quantised: a multiple of every format's block.
#pragma once
#include <cstdint>

namespace sf {

inline constexpr int64_t kQuantizedPiece = int64_t(1) << 22;

}  // namespace sf
