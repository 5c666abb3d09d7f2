#include "scaffolding/io/object_entries.h"

#include "scaffolding/core/error.h"

namespace sf::io {

void set_entry(const Object& dict, std::string_view key, Object value) {
  SF_CHECK_AS(TypeError, dict.is_dict(), "set_entry: a dict was expected, got ", Object::name(dict.kind()));
  auto& items = dict.items();
  for (size_t i = 0; i + 1 < items.size(); i += 2)
    if (items[i].is(Object::String) && items[i].text() == key) return void(items[i + 1] = std::move(value));
  items.push_back(Object(key));
  items.push_back(std::move(value));
}

}  // namespace sf::io
