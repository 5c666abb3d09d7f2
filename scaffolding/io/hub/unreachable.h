// Servers that gave no connection, remembered for half a minute: without a network each further file would wait as the
// first one did. Any thread may call any of these.
#pragma once
#include <string>

namespace sf::io {

// origin: as url_origin has it.
void remember_unreachable(const std::string& origin, const std::string& why);
std::string why_unreachable(const std::string& origin);  // "" where nothing is remembered

}  // namespace sf::io
