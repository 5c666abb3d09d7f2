#include "scaffolding/tokenizers/bpe_files.h"

#include <algorithm>

#include "scaffolding/core/error.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

Merges read_merges(const io::Bytes& file) {
  const std::string& path = file.name;
  std::string_view text(file.size ? file.chars() : "", size_t(file.size));
  require_utf8(text, path.c_str());
  Merges merges;
  for (size_t at = 0, line = 1; at < text.size(); ++line) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view row = text.substr(at, end - at);
    at = end + 1;
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty() || (line == 1 && row.starts_with("#version"))) continue;
    size_t space = row.find(' ');
    SF_CHECK(space != 0 && space + 1 < row.size() && space != std::string_view::npos &&
                 row.find(' ', space + 1) == std::string_view::npos,
             path, ": line ", line, " must be two tokens with a space between, got '", row.substr(0, 80), "'");
    merges.emplace_back(row.substr(0, space), row.substr(space + 1));
  }
  return merges;
}

std::string merges_text(const Merges& merges) {
  std::string text = "#version: 0.2\n";
  for (auto& [left, right] : merges) text += left + " " + right + "\n";
  return text;
}

}  // namespace sf::tokenizers
