// Base64 (RFC 4648, section 4): bytes as text, for formats that hold no bytes.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace sf::io {

std::string to_base64(std::string_view bytes);
// Up to the first '='. Absent for a character that is none of base64's.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace sf::io
