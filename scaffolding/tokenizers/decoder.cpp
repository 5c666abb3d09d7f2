#include <algorithm>
#include <optional>

#include "scaffolding/tokenizers/regex.h"
#include "scaffolding/tokenizers/stages.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  std::string out;
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string::npos; done = at + from.size())
    out.append(text, done, at - done).append(to);
  text = out.append(text, done);
  SF_CHECK(text.size() <= kMaxText, "tokenizer: the text grows beyond ", kMaxText, " bytes");
}

struct ByteLevelDecoder final : Decoder {
  Tokens apply(Tokens tokens) const override {
    std::string bytes;
    for (auto& t : tokens) {
      std::string own;
      bool known = true;
      for (size_t i = 0; i < t.size() && known;) {
        int b = byte_of_character(next_character(t, i));
        known = b >= 0;
        own += char(b);
      }
      bytes += known ? own : t;
    }
    return {repair_utf8(bytes)};
  }
};

struct MetaspaceDecoder final : Decoder {
  explicit MetaspaceDecoder(const JsonPart& part) : replacement(part.text_or("replacement", "\xE2\x96\x81")) {
    prefix = part.text_or("prepend_scheme", part.flag_or("add_prefix_space", true) ? "always" : "never") != "never";
    if (replacement.empty()) part.refuse("replacement must be one character");
  }
  Tokens apply(Tokens tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i == 0 && prefix)  // every mark of the first token goes, as in the tokenizers package
        replace_all(tokens[i], replacement, "");
      else replace_all(tokens[i], replacement, " ");
    }
    return tokens;
  }
  std::string replacement;
  bool prefix;
};

struct BpeDecoder final : Decoder {
  explicit BpeDecoder(const JsonPart& part) : suffix(part.text_or("suffix", "</w>")) {}
  Tokens apply(Tokens tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
    return tokens;
  }
  std::string suffix;
};

// English spacing, as transformers' clean_up_tokenization has it.
void clean_up(std::string& text) {
  for (auto [from, to] : {std::pair{" .", "."},
                          {" ?", "?"},
                          {" !", "!"},
                          {" ,", ","},
                          {" ' ", "'"},
                          {" n't", "n't"},
                          {" 'm", "'m"},
                          {" do not", " don't"},
                          {" 's", "'s"},
                          {" 've", "'ve"},
                          {" 're", "'re"}})
    replace_all(text, from, to);
}

struct WordPieceDecoder final : Decoder {
  explicit WordPieceDecoder(const JsonPart& part)
      : prefix(part.text_or("prefix", "##")), cleanup(part.flag_or("cleanup", true)) {}
  Tokens apply(Tokens tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) tokens[i] = tokens[i].starts_with(prefix) ? tokens[i].substr(prefix.size()) : " " + tokens[i];
      if (cleanup) clean_up(tokens[i]);
    }
    return tokens;
  }
  std::string prefix;
  bool cleanup;
};

struct ReplaceDecoder final : Decoder {
  explicit ReplaceDecoder(const JsonPart& part) {
    auto copy = part.json();
    copy["type"] = "Replace";
    rule = make_normalizer({copy, part.where()});
  }
  Tokens apply(Tokens tokens) const override {
    for (auto& t : tokens) t = rule->apply(std::move(t));
    return tokens;
  }
  std::unique_ptr<Normalizer> rule;
};

struct ByteFallbackDecoder final : Decoder {
  static int byte_of(const std::string& t) {
    if (t.size() != 6 || !t.starts_with("<0x") || t[5] != '>') return -1;
    int v = 0;
    for (char c : {t[3], t[4]}) {
      int d = c >= '0' && c <= '9'   ? c - '0'
              : c >= 'A' && c <= 'F' ? c - 'A' + 10
              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                     : -1;
      if (d < 0) return -1;
      v = v * 16 + d;
    }
    return v;
  }
  Tokens apply(Tokens tokens) const override {
    Tokens out;
    std::string bytes;
    auto flush = [&] {
      if (bytes.empty()) return;
      std::string repaired = repair_utf8(bytes);
      if (repaired == bytes) out.push_back(bytes);
      else  // one sign for each byte that belongs to no character
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      bytes.clear();
    };
    for (auto& t : tokens) {
      int b = byte_of(t);
      if (b >= 0) {
        bytes += char(b);
      } else {
        flush();
        out.push_back(std::move(t));
      }
    }
    flush();
    return out;
  }
};

struct Fuse final : Decoder {
  Tokens apply(Tokens tokens) const override {
    std::string all;
    for (auto& t : tokens) all += t;
    return {all};
  }
};

struct StripDecoder final : Decoder {
  explicit StripDecoder(const JsonPart& part)
      : content(part["content"].text()),
        start(part["start"].integer(0, 1 << 20)),
        stop(part["stop"].integer(0, 1 << 20)) {
    if (content.empty() || character_bytes(content, 0) != content.size()) part.refuse("content must be one character");
  }
  Tokens apply(Tokens tokens) const override {
    for (auto& t : tokens) {
      std::string_view view(t);
      for (int64_t i = 0; i < start && view.starts_with(content); ++i) view.remove_prefix(content.size());
      for (int64_t i = 0; i < stop && view.ends_with(content); ++i) view.remove_suffix(content.size());
      t = std::string(view);
    }
    return tokens;
  }
  std::string content;
  int64_t start, stop;
};

struct DecoderSequence final : Decoder {
  explicit DecoderSequence(const JsonPart& part) {
    for (auto& p : part["decoders"].items()) parts.push_back(make_decoder(p));
  }
  Tokens apply(Tokens tokens) const override {
    for (auto& p : parts) tokens = p->apply(std::move(tokens));
    return tokens;
  }
  std::vector<std::unique_ptr<Decoder>> parts;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const JsonPart& part) {
  const std::string& type = part["type"].text();
  if (type == "Sequence") return std::make_unique<DecoderSequence>(part);
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(part);
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(part);
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(part);
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(part);
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Strip") return std::make_unique<StripDecoder>(part);
  part.refuse("the decoder '", type, "' is not known");
}

}  // namespace sf::tokenizers
