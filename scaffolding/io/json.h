// Documents of JSON as text: reader and writer are compiled here once, and not in every file that has one.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace sf::io {

// is_discarded() where the text is no JSON. For texts whose depth and size something else bounds.
nlohmann::json parse_json(std::string_view text);
nlohmann::ordered_json parse_ordered_json(std::string_view text);

// indent: spaces a level; below 0 all is one line. Strings must be UTF-8: nlohmann's type_error (316) otherwise.
std::string json_text(const nlohmann::json& document, int indent = -1);
std::string json_text(const nlohmann::ordered_json& document, int indent = -1);
// Bytes that are no UTF-8 become U+FFFD: for what is shown or logged, and may hold what a stranger has sent.
std::string tolerant_json_text(const nlohmann::json& document, int indent = -1);
std::string tolerant_json_text(const nlohmann::ordered_json& document, int indent = -1);

}  // namespace sf::io
