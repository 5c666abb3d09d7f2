// Whether the processor multiplies fours of int8 by vpdpbusd (VNNI).
#pragma once

namespace sf::cpu {

// On vectors of 64 bytes (AVX512-VNNI) or 32 (AVX-VNNI). SF_INT8_DOT=0 says no.
bool int8_dot_of_bytes(int bytes);

}  // namespace sf::cpu
