// Letters of five by seven points (and one below the line), for captions in pictures. Functions only.
#pragma once
#include <array>
#include <cstdint>

namespace sf::cli {

// Columns from left to right; the lowest bit is the top. Printable ASCII; an empty box for what is not.
const std::array<uint8_t, 5>& letter(char c);

}  // namespace sf::cli
