#include "scaffolding/tokenizers/pretrained.h"

#include <filesystem>

#include "scaffolding/io/config.h"

namespace sf::tokenizers {

namespace {

struct Class {
  std::string name;
  const char* file;  // that tells its folders from those of others
  detail::LoadTokenizer load;
};
std::vector<Class>& registry() {
  static std::vector<Class> all;
  return all;
}

std::string known_classes() {
  std::string names;
  for (auto& c : registry()) names += (names.empty() ? "" : ", ") + c.name;
  return names;
}

const Class* find(const std::string& name) {
  for (auto& c : registry())
    if (c.name == name) return &c;
  return nullptr;
}

}  // namespace

bool detail::add_tokenizer(std::string_view names, const char* file, LoadTokenizer load) {
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(", ", at), names.size());
    registry().push_back({std::string(names.substr(at, end - at)), file, load});
    at = end + 2;
  }
  return true;
}

std::vector<std::string> tokenizer_classes() {
  std::vector<std::string> names;
  for (auto& c : registry()) names.push_back(c.name);
  return names;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& class_name, const TokenizerFiles& files) {
  const Class* c = find(class_name);
  SF_CHECK(c, "tokenizer: there is no class '", class_name, "'; there are ", known_classes());
  return c->load(files);
}

std::string tokenizer_class_of(const std::string& folder) {
  const std::filesystem::path place(folder);
  std::error_code error;
  if (std::filesystem::is_regular_file(place / "tokenizer_config.json", error)) {
    const io::Object config = io::read_config_file((place / "tokenizer_config.json").string());
    auto* named = config.find("tokenizer_class");
    if (named && named->is(io::Object::String) && find(named->text())) return named->text();
  }
  for (auto& c : registry())
    if (std::filesystem::is_regular_file(place / c.file, error)) return c.name;
  fail("tokenizer: '", folder, "' does not say which class it is of; there are ", known_classes());
}

}  // namespace sf::tokenizers
