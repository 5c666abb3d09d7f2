#include "scaffolding/tokenizers/pretrained.h"

namespace sf::tokenizers {

namespace {
std::vector<std::pair<std::string, detail::LoadTokenizer>>& registry() {
  static std::vector<std::pair<std::string, detail::LoadTokenizer>> all;
  return all;
}
}  // namespace

bool detail::add_tokenizer(std::string_view names, LoadTokenizer load) {
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(", ", at), names.size());
    registry().emplace_back(names.substr(at, end - at), load);
    at = end + 2;
  }
  return true;
}

std::vector<std::string> tokenizer_classes() {
  std::vector<std::string> names;
  for (auto& [name, load] : registry()) names.push_back(name);
  return names;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& class_name, const std::string& folder) {
  std::string known;
  for (auto& [name, load] : registry()) {
    if (name == class_name) return load(folder);
    known += (known.empty() ? "" : ", ") + name;
  }
  fail("tokenizer: there is no class '", class_name, "'; there are ", known);
}

}  // namespace sf::tokenizers
