#include <algorithm>

#include "scaffolding/tokenizers/json_part.h"
#include "scaffolding/tokenizers/model.h"

namespace sf::tokenizers {

void Vocabulary::add(const std::string& token, int64_t id, const std::string& where) {
  SF_CHECK(id >= 0 && id < INT32_MAX, where, ": the id of '", token, "' must be between 0 and 2^31-2, got ", id);
  auto [at, is_new] = ids_.emplace(token, id);
  SF_CHECK(is_new, where, ": '", token, "' has the ids ", at->second, " and ", id);
  auto [other, free] = tokens_.emplace(id, &at->first);
  SF_CHECK(free, where, ": '", *other->second, "' and '", token, "' both have id ", id);
  next_ = std::max(next_, id + 1);
}

std::optional<int64_t> Vocabulary::id(std::string_view token) const {
  auto at = ids_.find(token);
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

const std::string* Vocabulary::token(int64_t id) const {
  auto at = tokens_.find(id);
  return at == tokens_.end() ? nullptr : at->second;
}

std::vector<std::pair<int64_t, std::string>> Vocabulary::sorted() const {
  std::vector<std::pair<int64_t, std::string>> out;
  out.reserve(ids_.size());
  for (auto& [token, id] : ids_) out.emplace_back(id, token);
  std::sort(out.begin(), out.end());
  return out;
}

Vocabulary read_vocabulary(const JsonPart& object) {
  if (!object.json().is_object()) object.refuse("must be an object of tokens and ids, got ", object.json().type_name());
  Vocabulary out;
  for (auto& [token, id] : object.json().items()) {
    if (!id.is_number_integer()) object.refuse("the id of '", token, "' must be a whole number, got ", id.type_name());
    out.add(token, JsonPart(id, object.where()).integer(0, INT32_MAX - 1), object.where());
  }
  return out;
}

}  // namespace sf::tokenizers
