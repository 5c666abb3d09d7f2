// SentencePiece's normalization rules: a double-array trie (darts-clone) from UTF-8 prefixes to replacements, and the
// replacements, each ended by a zero byte. As in spm_precompiled, which the tokenizers package uses: a grapheme of
// fewer than six bytes is looked up as a whole, then characters alone,
// and the shortest prefix that the trie knows decides.
#include <cstring>
#include <optional>

#include "scaffolding/io/base64.h"
#include "scaffolding/tokenizers/stages.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

std::string bytes_of(const JsonPart& part) {
  std::optional<std::string> bytes = io::from_base64(part.text());
  if (!bytes) part.refuse("must be base64");
  return std::move(*bytes);
}

class Precompiled final : public Normalizer {
 public:
  // bytes: the trie's size, the trie, and the replacements; or nothing, for no rules.
  Precompiled(const std::string& bytes, std::string where) : where_(std::move(where)) {
    if (bytes.empty()) return;
    uint32_t size = 0;
    if (bytes.size() >= 4) std::memcpy(&size, bytes.data(), 4);
    SF_CHECK(bytes.size() >= 4 && size % 4 == 0 && size <= bytes.size() - 4 && size > 0, where_,
             ": its trie does not fit into ", bytes.size(), " bytes");
    units_.resize(size / 4);
    std::memcpy(units_.data(), bytes.data() + 4, size);
    texts_ = bytes.substr(4 + size);
    require_utf8(texts_, where_.c_str());
  }

  std::string apply(std::string text) const override {
    if (units_.empty()) return text;
    std::string out;
    auto starts = grapheme_starts(text);
    std::string_view view(text);
    for (size_t g = 0; g + 1 < starts.size(); ++g) {
      std::string_view grapheme = view.substr(starts[g], starts[g + 1] - starts[g]);
      if (grapheme.size() < 6) {
        if (auto whole = replacement(grapheme)) {
          out += *whole;
          continue;
        }
      }
      for (size_t i = 0; i < grapheme.size();) {
        size_t at = i;
        next_character(grapheme, i);
        std::string_view one = grapheme.substr(at, i - at);
        out += replacement(one).value_or(one);
      }
      SF_CHECK(out.size() <= kMaxText, where_, ": the text grows beyond ", kMaxText, " bytes");
    }
    return out;
  }

 private:
  uint32_t unit(size_t at) const {
    SF_CHECK(at < units_.size(), where_, ": its trie points outside of itself");
    return units_[at];
  }
  std::optional<std::string_view> replacement(std::string_view key) const {
    auto offset = [](uint32_t u) { return size_t(u >> 10) << ((u & (1u << 9)) >> 6); };
    size_t node = offset(unit(0));
    for (char k : key) {
      auto c = static_cast<unsigned char>(k);
      if (c == 0) return std::nullopt;
      node ^= c;
      uint32_t u = unit(node);
      if ((u & ((1u << 31) | 0xFF)) != c) return std::nullopt;
      node ^= offset(u);
      if ((u >> 8) & 1) {
        size_t begin = unit(node) & 0x7FFFFFFF;
        SF_CHECK(begin <= texts_.size(), where_, ": a replacement lies outside of its text");
        SF_CHECK(begin == texts_.size() || (static_cast<unsigned char>(texts_[begin]) & 0xC0) != 0x80, where_,
                 ": a replacement begins within a character");
        return std::string_view(texts_).substr(begin, std::min(texts_.find('\0', begin), texts_.size()) - begin);
      }
    }
    return std::nullopt;
  }

  std::vector<uint32_t> units_;
  std::string texts_, where_;
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled(const std::string& charsmap, const std::string& where) {
  return std::make_unique<Precompiled>(charsmap, where);
}

std::unique_ptr<Normalizer> make_precompiled(const JsonPart& part) {
  if (!part.has("precompiled_charsmap")) return make_precompiled("", part.where());
  JsonPart map = part["precompiled_charsmap"];
  return make_precompiled(bytes_of(map), map.where());
}

}  // namespace sf::tokenizers
