// Tables that are compiled into the library, deflated (cmake/embedded_tables.cmake).
#pragma once
#include <span>
#include <string>

namespace sf::tokenizers {

// The ids of each merge's two tokens, 16 bits each, as four planes: low and high bytes of the left ids, then of the
// right ones.
std::span<const unsigned char> clip_merges_file();
// HTML's named character references: "name=code points in hexadecimal, by +" and a space after each. Names with and
// without a semicolon are names of their own.
std::span<const unsigned char> html_entities_file();

// What `file` inflates to, which has `size` bytes. RuntimeError where it does not: the library is damaged.
std::string inflated(const char* what, std::span<const unsigned char> file, size_t size);

}  // namespace sf::tokenizers
