// Positions in the order of their destinations.
#pragma once
#include <cstdint>

namespace sf {

// Fills order with the points of [0, n) whose offset is not negative, by offset, equal ones in the order given, and
// says how many they are. `order` has room for 2 n. Declared without inline code: files compiled for an instruction
// set call it.
int64_t sort_points(const int64_t* offset, int64_t n, int64_t* order);

}  // namespace sf
