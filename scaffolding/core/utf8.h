// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. Functions only.
#pragma once
#include <cstddef>
#include <string_view>

namespace sf {

size_t utf8_length(std::string_view text);  // bytes of the character that text begins with, 0 where there is none
bool is_utf8(std::string_view text);

}  // namespace sf
