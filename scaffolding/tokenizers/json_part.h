// JsonPart: a value inside a JSON file of unknown origin together with where it stands, so that every refusal names
// file and place. Private to tokenizers/: nlohmann's headers stay out of the public ones. Borrows the document.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "scaffolding/core/error.h"
#include "scaffolding/io/file.h"

namespace sf::tokenizers {

using Json = nlohmann::json;

// Parses the whole file. ValueError naming it when it is larger than 512 MB, nested deeper than 64 or not JSON.
Json parse_json(const io::Bytes& file);

class JsonPart {
 public:
  JsonPart(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const Json& json() const { return *value_; }
  const std::string& where() const { return where_; }
  bool has(const char* key) const;  // there is one, and it is not null
  JsonPart operator[](const char* key) const;
  std::vector<JsonPart> items() const;  // of an array
  const std::string& text() const;
  bool flag() const;
  int64_t integer(int64_t least, int64_t most) const;
  double number() const;

  // Members that may be missing or null.
  std::string text_or(const char* key, const char* otherwise) const {
    return has(key) ? (*this)[key].text() : otherwise;
  }
  bool flag_or(const char* key, bool otherwise) const { return has(key) ? (*this)[key].flag() : otherwise; }

  template <class... P> [[noreturn]] void refuse(const P&... what) const { fail(where_, ": ", what...); }

 private:
  const Json* value_;
  std::string where_;
};

}  // namespace sf::tokenizers
