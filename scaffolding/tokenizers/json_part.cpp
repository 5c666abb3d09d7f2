#include "scaffolding/tokenizers/json_part.h"

#include <cmath>

namespace sf::tokenizers {

namespace {
constexpr uint64_t kMaxFile = 512'000'000;  // bytes; the largest tokenizer.json in use have some 35 MB
constexpr int kMaxDepth = 64;

int depth_of(const char* text, uint64_t size) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (uint64_t i = 0; i < size; ++i) {
    char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}
}  // namespace

Json parse_json(const io::Bytes& file) {
  SF_CHECK(file.size <= kMaxFile, file.name, ": a file of ", file.size, " bytes is too large for a tokenizer");
  const char* text = file.size ? file.chars() : "";
  SF_CHECK(depth_of(text, file.size) <= kMaxDepth, file.name, ": it is nested more than ", kMaxDepth, " deep");
  try {
    return Json::parse(text, text + file.size);
  } catch (const Json::parse_error& e) {
    fail(file.name, ": the JSON is broken at byte ", e.byte);
  } catch (const Json::exception&) {
    fail(file.name, ": the JSON holds a number that cannot be represented");
  }
}

bool JsonPart::has(const char* key) const {
  if (!value_->is_object()) refuse("must be an object, got ", value_->type_name());
  auto it = value_->find(key);
  return it != value_->end() && !it->is_null();
}

JsonPart JsonPart::operator[](const char* key) const {
  if (!has(key)) refuse("'", key, "' is missing");
  return {(*value_)[key], where_ + "." + key};
}

std::vector<JsonPart> JsonPart::items() const {
  if (!value_->is_array()) refuse("must be a list, got ", value_->type_name());
  std::vector<JsonPart> out;
  out.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) out.emplace_back((*value_)[i], where_ + "[" + std::to_string(i) + "]");
  return out;
}

const std::string& JsonPart::text() const {
  if (!value_->is_string()) refuse("must be a string, got ", value_->type_name());
  return value_->get_ref<const std::string&>();
}

bool JsonPart::flag() const {
  if (!value_->is_boolean()) refuse("must be true or false, got ", value_->type_name());
  return value_->get<bool>();
}

int64_t JsonPart::integer(int64_t least, int64_t most) const {
  if (!value_->is_number_integer()) refuse("must be a whole number, got ", value_->type_name());
  bool huge = value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t(INT64_MAX);
  int64_t v = huge ? INT64_MAX : value_->get<int64_t>();
  if (huge || v < least || v > most) refuse("must be between ", least, " and ", most, ", got ", value_->dump());
  return v;
}

double JsonPart::number() const {
  if (!value_->is_number()) refuse("must be a number, got ", value_->type_name());
  return value_->get<double>();
}

}  // namespace sf::tokenizers
