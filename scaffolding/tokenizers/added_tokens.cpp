#include "scaffolding/tokenizers/added_tokens.h"

#include "scaffolding/tokenizers/stages.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

void TokenTrie::add(std::string_view text, int64_t id) {
  if (text.empty()) return;
  uint32_t node = 0;
  for (char c : text) {
    auto [at, is_new] =
        children_.try_emplace((uint64_t(node) << 8) | static_cast<unsigned char>(c), uint32_t(ids_.size()));
    if (is_new) ids_.push_back(-1);
    node = at->second;
  }
  if (ids_[node] < 0) ids_[node] = id;
}

std::pair<int64_t, size_t> TokenTrie::longest(std::string_view text, size_t at) const {
  std::pair<int64_t, size_t> found{-1, 0};
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    auto next = children_.find((uint64_t(node) << 8) | static_cast<unsigned char>(text[i]));
    if (next == children_.end()) break;
    node = next->second;
    if (ids_[node] >= 0) found = {ids_[node], i + 1 - at};
  }
  return found;
}

void AddedTokens::add(const AddedToken& token, int64_t id) {
  tokens_[id] = token;
  ids_[token.content] = id;
}

void AddedTokens::remove(const std::string& content) {
  if (auto known = ids_.find(content); known != ids_.end()) {
    tokens_.erase(known->second);
    ids_.erase(known);
  }
}

void AddedTokens::index(const Normalizer* normalizer) {
  raw_ = normalized_ = {};
  for (auto& [id, t] : tokens_) {
    if (!t.normalized) raw_.add(t.content, id);
    else normalized_.add(normalizer ? normalizer->apply(t.content) : t.content, id);
  }
}

std::vector<AddedTokens::Span> AddedTokens::split(std::string_view text, bool normalized) const {
  const TokenTrie& trie = normalized ? normalized_ : raw_;
  std::vector<Span> out;
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    auto [id, bytes] = trie.longest(text, i);
    if (bytes == 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_.at(id);
    size_t begin = i, end = i + bytes;
    i = end;  // white space that rstrip takes may still begin the next token, as in the tokenizers package
    size_t at = end;
    if (token.single_word && ((begin > 0 && is_word(last_character(text.substr(0, begin)))) ||
                              (end < text.size() && is_word(next_character(text, at)))))
      continue;
    while (token.lstrip && begin > done && is_whitespace(last_character(text.substr(0, begin)))) do
        --begin;
      while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
    for (at = end; token.rstrip && at < text.size(); end = at)
      if (!is_whitespace(next_character(text, at))) break;
    if (begin > done) out.push_back({done, begin, -1});
    out.push_back({begin, end, id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
  return out;
}

const AddedToken* AddedTokens::find(int64_t id) const {
  auto at = tokens_.find(id);
  return at == tokens_.end() ? nullptr : &at->second;
}

std::optional<int64_t> AddedTokens::id(std::string_view content) const {
  auto at = ids_.find(content);
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace sf::tokenizers
