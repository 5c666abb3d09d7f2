#include "scaffolding/io/json.h"

#include <nlohmann/json.hpp>

namespace sf::io {

nlohmann::json parse_json(std::string_view text) { return nlohmann::json::parse(text, nullptr, false); }
nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  return nlohmann::ordered_json::parse(text, nullptr, false);
}

std::string json_text(const nlohmann::json& document, int indent) { return document.dump(indent); }
std::string json_text(const nlohmann::ordered_json& document, int indent) { return document.dump(indent); }

std::string tolerant_json_text(const nlohmann::json& document, int indent) {
  return document.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}
std::string tolerant_json_text(const nlohmann::ordered_json& document, int indent) {
  return document.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace sf::io
