// AddedTokens: finds added tokens in texts, the longest of those that begin first. Owned by a tokenizer;
// const use is thread-safe.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "scaffolding/tokenizers/tokenizer.h"

namespace sf::tokenizers {

struct Normalizer;

// Strings by their bytes.
class TokenTrie {
 public:
  void add(std::string_view text, int64_t id);
  // The longest string that text has at `at`: its id and bytes; bytes 0 without one.
  std::pair<int64_t, size_t> longest(std::string_view text, size_t at) const;

 private:
  std::unordered_map<uint64_t, uint32_t> children_;
  std::vector<int64_t> ids_ = {-1};
};

class AddedTokens {
 public:
  struct Span {
    size_t begin, end;
    int64_t id;  // -1: between added tokens
  };

  void add(const AddedToken& token, int64_t id);
  void remove(const std::string& content);   // nothing happens where there is none
  void index(const Normalizer* normalizer);  // after the last change
  std::vector<Span> split(std::string_view text, bool normalized) const;

  const AddedToken* find(int64_t id) const;
  std::optional<int64_t> id(std::string_view content) const;
  const std::map<int64_t, AddedToken>& all() const { return tokens_; }

 private:
  std::map<int64_t, AddedToken> tokens_;
  std::map<std::string, int64_t, std::less<>> ids_;
  TokenTrie raw_, normalized_;
};

}  // namespace sf::tokenizers
