#include <functional>
#include <optional>

#include "scaffolding/tokenizers/regex.h"
#include "scaffolding/tokenizers/stages.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

enum class Behavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

Behavior behavior_of(const JsonPart& part) {
  const std::string& name = part.text();
  if (name == "Removed") return Behavior::Removed;
  if (name == "Isolated") return Behavior::Isolated;
  if (name == "MergedWithPrevious") return Behavior::MergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::MergedWithNext;
  if (name == "Contiguous") return Behavior::Contiguous;
  part.refuse("must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous, got '", name, "'");
}

// Matches in order, without overlaps, become the pieces of `piece`; what lies between them too. Empty ones are dropped.
void split(const Piece& piece, const std::vector<Range>& matches, bool invert, Behavior behavior,
           std::vector<Piece>& out) {
  struct Part {
    size_t begin, end;
    bool match;
  };
  std::vector<Part> parts;
  size_t done = 0;
  for (auto [begin, end] : matches) {
    if (begin > done) parts.push_back({done, begin, invert});
    parts.push_back({begin, end, !invert});
    done = end;
  }
  if (done < piece.text.size()) parts.push_back({done, piece.text.size(), invert});
  std::vector<Part> kept;
  switch (behavior) {
    case Behavior::Isolated: kept = std::move(parts); break;
    case Behavior::Removed:
      for (auto& p : parts)
        if (!p.match) kept.push_back(p);
      break;
    case Behavior::Contiguous:
      for (auto& p : parts) {
        if (!kept.empty() && kept.back().match == p.match) {
          kept.back().end = p.end;
        } else {
          kept.push_back(p);
        }
      }
      break;
    case Behavior::MergedWithPrevious:
      for (size_t i = 0; i < parts.size(); ++i) {
        if (i > 0 && parts[i].match && !parts[i - 1].match) {
          kept.back().end = parts[i].end;
        } else {
          kept.push_back(parts[i]);
        }
      }
      break;
    case Behavior::MergedWithNext:
      for (size_t i = 0; i < parts.size(); ++i) {
        kept.push_back(parts[i]);
        if (parts[i].match && i + 1 < parts.size() && !parts[i + 1].match) kept.back().end = parts[++i].end;
      }
      break;
  }
  for (auto& p : kept)
    if (p.end > p.begin) out.push_back({piece.text.substr(p.begin, p.end - p.begin), piece.first && p.begin == 0});
}

std::vector<Range> characters(std::string_view text, const std::function<bool(char32_t)>& chosen) {
  std::vector<Range> out;
  for (size_t i = 0; i < text.size();) {
    size_t at = i;
    if (chosen(next_character(text, i))) out.push_back({at, i});
  }
  return out;
}

struct ByCharacter final : PreTokenizer {
  ByCharacter(std::function<bool(char32_t)> c, Behavior b) : chosen(std::move(c)), behavior(b) {}
  std::vector<Piece> apply(std::vector<Piece> pieces) const override {
    std::vector<Piece> out;
    for (auto& p : pieces) split(p, characters(p.text, chosen), false, behavior, out);
    return out;
  }
  std::function<bool(char32_t)> chosen;
  Behavior behavior;
};

struct ByPattern final : PreTokenizer {
  ByPattern(const std::string& pattern, const std::string& where, Behavior b, bool i)
      : regex(std::in_place, pattern, where), behavior(b), invert(i) {}
  explicit ByPattern(const JsonPart& part)
      : behavior(behavior_of(part["behavior"])), invert(part.flag_or("invert", false)) {
    JsonPart pattern = part["pattern"];
    if (pattern.has("Regex")) {
      regex.emplace(pattern["Regex"].text(), pattern.where());
    } else {
      literal = pattern["String"].text();
    }
  }
  std::vector<Piece> apply(std::vector<Piece> pieces) const override {
    std::vector<Piece> out;
    for (auto& p : pieces) split(p, matches(p.text), invert, behavior, out);
    return out;
  }
  std::vector<Range> matches(const std::string& text) const {
    if (regex) return regex->find_all(text);
    std::vector<Range> out;
    if (!literal.empty())
      for (size_t at = 0; (at = text.find(literal, at)) != std::string::npos; at += literal.size())
        out.push_back({at, at + literal.size()});
    return out;
  }
  std::optional<Regex> regex;
  std::string literal;
  Behavior behavior;
  bool invert;
};

// GPT-2's: words with their leading space, then bytes as characters.
struct ByteLevel final : PreTokenizer {
  explicit ByteLevel(const JsonPart& part) : prefix(part.flag_or("add_prefix_space", true)) {
    if (part.flag_or("use_regex", true))
      words.emplace(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", part.where(),
                    Behavior::Isolated, false);
  }
  std::vector<Piece> apply(std::vector<Piece> pieces) const override {
    if (prefix)
      for (auto& p : pieces)
        if (!p.text.starts_with(' ')) p.text.insert(0, 1, ' ');
    if (words) pieces = words->apply(std::move(pieces));
    for (auto& p : pieces) p.text = byte_level(p.text);
    return pieces;
  }
  bool prefix;
  std::optional<ByPattern> words;
};

struct Metaspace final : PreTokenizer {
  explicit Metaspace(const JsonPart& part)
      : replacement(part.text_or("replacement", "\xE2\x96\x81")), splits(part.flag_or("split", true)) {
    require_utf8(replacement, part.where().c_str());
    if (replacement.empty() || character_bytes(replacement, 0) != replacement.size())
      part.refuse("replacement must be one character");
    scheme = part.text_or("prepend_scheme", part.flag_or("add_prefix_space", true) ? "always" : "never");
    if (scheme != "always" && scheme != "never" && scheme != "first")
      part.refuse("prepend_scheme must be always, never or first, got '", scheme, "'");
  }
  std::vector<Piece> apply(std::vector<Piece> pieces) const override {
    std::vector<Piece> out;
    for (auto& p : pieces) {
      Piece marked{"", p.first};
      for (char c : p.text) {
        if (c == ' ') {
          marked.text += replacement;
        } else {
          marked.text += c;
        }
      }
      if ((scheme == "always" || (scheme == "first" && p.first)) && !marked.text.starts_with(replacement))
        marked.text.insert(0, replacement);
      if (!splits) {
        out.push_back(std::move(marked));
        continue;
      }
      std::vector<Range> marks;
      for (size_t at = 0; (at = marked.text.find(replacement, at)) != std::string::npos; at += replacement.size())
        marks.push_back({at, at + replacement.size()});
      split(marked, marks, false, Behavior::MergedWithNext, out);
    }
    return out;
  }
  std::string replacement, scheme;
  bool splits;
};

struct PreTokenizerSequence final : PreTokenizer {
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> p) : parts(std::move(p)) {}
  std::vector<Piece> apply(std::vector<Piece> pieces) const override {
    for (auto& p : parts) {
      pieces = p->apply(std::move(pieces));
      size_t total = 0;
      for (auto& piece : pieces) total += piece.text.size();
      SF_CHECK(total <= kMaxText, "tokenizer: the text grows beyond ", kMaxText, " bytes");
    }
    return pieces;
  }
  std::vector<std::unique_ptr<PreTokenizer>> parts;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonPart& part) {
  const std::string& type = part["type"].text();
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  if (type == "Sequence") {
    for (auto& p : part["pretokenizers"].items()) parts.push_back(make_pre_tokenizer(p));
    return std::make_unique<PreTokenizerSequence>(std::move(parts));
  }
  if (type == "ByteLevel") return std::make_unique<ByteLevel>(part);
  if (type == "Metaspace") return std::make_unique<Metaspace>(part);
  if (type == "Split") return std::make_unique<ByPattern>(part);
  if (type == "Whitespace")
    return std::make_unique<ByPattern>(R"([\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+)", part.where(),
                                       Behavior::Removed, true);
  if (type == "WhitespaceSplit") return std::make_unique<ByCharacter>(is_whitespace, Behavior::Removed);
  if (type == "Digits")
    return std::make_unique<ByCharacter>(
        is_numeric, part.flag_or("individual_digits", false) ? Behavior::Isolated : Behavior::Contiguous);
  if (type == "Punctuation")
    return std::make_unique<ByCharacter>(is_punctuation,
                                         part.has("behavior") ? behavior_of(part["behavior"]) : Behavior::Isolated);
  if (type == "BertPreTokenizer") {
    parts.push_back(std::make_unique<ByCharacter>(is_whitespace, Behavior::Removed));
    parts.push_back(std::make_unique<ByCharacter>(is_punctuation, Behavior::Isolated));
    return std::make_unique<PreTokenizerSequence>(std::move(parts));
  }
  if (type == "CharDelimiterSplit") {
    const std::string& text = part["delimiter"].text();
    if (text.empty() || character_bytes(text, 0) != text.size()) part.refuse("delimiter must be one character");
    return std::make_unique<ByCharacter>([d = last_character(text)](char32_t c) { return c == d; }, Behavior::Removed);
  }
  part.refuse("the pre-tokenizer '", type, "' is not known");
}

}  // namespace sf::tokenizers
