// printable: a stranger's text as it may stand in a message. A function only.
#pragma once
#include <string>
#include <string_view>

namespace sf {

// Control characters, which would break its line or steer a terminal, as \n, \r, \t and \x1b; bytes that are no UTF-8
// as \xff.
std::string printable(std::string_view text);

}  // namespace sf
