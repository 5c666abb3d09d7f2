// Whether this process may use the processor's tiles (AMX): a unit that multiplies a 16 x 32 matrix of bfloat16 by a
// 32 x 16 one in 16 cycles, in registers of their own that the kernel gives to those that ask.
#pragma once
#include <string>

namespace sf::cpu {

// The processor has tiles with bfloat16 and int8, and the kernel lets this process use them. Asks the kernel once; the
// answer holds for all threads and for children.
bool has_tiles();
// Why not, in words, where the processor has tiles but this process may not use them; else empty.
std::string tiles_refused();

}  // namespace sf::cpu
