// Whether products of bfloat16 numbers go through vdpbf16ps. AMD's cores do twice as many multiply-adds with it as with
// float32; Intel's do half as many (Sapphire Rapids without AMX, one core: 84 GFLOP/s against 174), so that widening to
// float32 is faster and more exact.
#pragma once

namespace sf::cpu {

// For our own kernels, compiled for avx512bf16. SF_BF16_DOT=0 or 1 decides otherwise.
bool bf16_dot_pays();
// For oneDNN, which has AMX where the processor does.
bool bf16_library_pays();

}  // namespace sf::cpu
