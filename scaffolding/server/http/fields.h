// The fields of a route's body or query: declared once, by which what comes is checked and /openapi.json is written.
// Functions and plain structs.
#pragma once
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sf::server {

using nlohmann::json;

enum class FieldKind : uint8_t { Text, Whole, Number, Flag, Texts, Object, Any };

struct FieldSpec {
  std::string name;
  FieldKind kind = FieldKind::Text;
  std::string doc = {};
  bool required = false;
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  size_t longest = 100'000;  // bytes of a text, entries of a list
  std::vector<std::string> choices = {};
  json usual = {};  // the default, where there is one that is the same for all

  FieldSpec& need() { return required = true, *this; }
  FieldSpec& range(double from, double to) { return least = from, most = to, *this; }
  FieldSpec& at_most(size_t n) { return longest = n, *this; }
  FieldSpec& one_of(std::vector<std::string> names) { return choices = std::move(names), *this; }
  FieldSpec& otherwise(json value) { return usual = std::move(value), *this; }
};
inline FieldSpec field(std::string name, FieldKind kind, std::string doc = "") {
  return {.name = std::move(name), .kind = kind, .doc = std::move(doc)};
}

struct Fields {
  std::vector<FieldSpec> all;
  bool others = false;  // what is not in the list passes; else it is an error
  const FieldSpec* find(std::string_view name) const;
};

struct FieldError {
  std::string name;    // of the field; "" where it is the whole body
  std::string reason;  // a sentence without the name: "must be a whole number, got 'a'"
  std::string kind;    // "missing", "type", "range", "unknown", "choice", "json"
};

inline constexpr int kMostJsonDepth = 32;

// A request's body. ValueError for what is no JSON object, for arrays and objects in each other deeper than
// kMostJsonDepth, and for a name that comes twice.
json parse_body(std::string_view text);
// Null counts as absent, and is taken away. What is wrong, in the order of the fields; empty: nothing.
std::vector<FieldError> check_fields(json& body, const Fields& fields);
// A query's or form's texts as values of their fields' kinds; what is none stays text, and check_fields says so.
json typed(const std::map<std::string, std::string>& texts, const Fields& fields);
json schema_of(const Fields& fields);  // JSON Schema, for OpenAPI
json schema_of(const FieldSpec& field);

// For messages: a value in at most 60 characters.
std::string shown(const json& value);

}  // namespace sf::server
