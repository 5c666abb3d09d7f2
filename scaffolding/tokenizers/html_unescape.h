// HTML's character references (&lt; &#60; &#x3c;) turned into characters. Any thread.
#pragma once
#include <string>
#include <string_view>

namespace sf::tokenizers {

// As Python's html.unescape: the rules of HTML 5, with the longest known name where a semicolon is missing. The text is
// valid UTF-8, and so is what comes back.
std::string html_unescape(std::string_view text);

}  // namespace sf::tokenizers
