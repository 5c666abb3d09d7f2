// Regex: a pattern of a tokenizer.json, by PCRE2. The files are written for Oniguruma; what differs is translated (\s,
// \w, ^ and $) or refused. Matching is bounded: a pattern that backtracks for too long is a ValueError. Immutable;
// const use is thread-safe.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sf::tokenizers {

struct Range {
  size_t begin, end;  // bytes
};

class Regex {
 public:
  Regex(const std::string& pattern, const std::string& where);  // where: file and place, for messages
  // Matches that do not overlap, left to right, in valid UTF-8. An empty one right behind a match is skipped.
  std::vector<Range> find_all(std::string_view text) const;

 private:
  std::shared_ptr<void> code_;
  std::string where_;
};

}  // namespace sf::tokenizers
