#include <optional>

#include "scaffolding/tokenizers/regex.h"
#include "scaffolding/tokenizers/stages.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

struct Form final : Normalizer {
  explicit Form(NormalForm f) : form(f) {}
  std::string apply(std::string text) const override { return normalize(text, form); }
  NormalForm form;
};

struct Lowercase final : Normalizer {
  std::string apply(std::string text) const override { return lowercase(text); }
};

template <class Keep> std::string filtered(std::string_view text, Keep keep) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t at = i;
    if (keep(next_character(text, i))) out.append(text.substr(at, i - at));
  }
  return out;
}

struct StripAccents final : Normalizer {
  std::string apply(std::string text) const override {
    return filtered(text, [](char32_t c) { return !is_mark(c); });
  }
};

struct ByteLevelText final : Normalizer {
  std::string apply(std::string text) const override { return byte_level(text); }
};

struct Prepend final : Normalizer {
  explicit Prepend(std::string p) : prefix(std::move(p)) {}
  std::string apply(std::string text) const override { return text.empty() ? text : prefix + text; }
  std::string prefix;
};

struct StripSpace final : Normalizer {
  StripSpace(bool l, bool r) : left(l), right(r) {}
  std::string apply(std::string text) const override {
    size_t begin = 0, end = text.size();
    for (size_t i = 0; left && i < text.size(); begin = i)
      if (!is_whitespace(next_character(text, i))) break;
    std::string_view rest(text);
    while (right && end > begin && is_whitespace(last_character(rest.substr(0, end)))) do
        --end;
      while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
    return text.substr(begin, end - begin);
  }
  bool left, right;
};

struct Replace final : Normalizer {
  explicit Replace(const JsonPart& part) : content(part["content"].text()), where(part.where()) {
    JsonPart pattern = part["pattern"];
    if (pattern.has("Regex")) {
      regex.emplace(pattern["Regex"].text(), pattern.where());
    } else {
      literal = pattern["String"].text();
    }
  }
  std::string apply(std::string text) const override {
    if (!regex && literal.empty()) return text;
    std::string out;
    size_t done = 0;
    auto replace = [&](size_t begin, size_t end) {
      out.append(text, done, begin - done);
      out += content;
      done = end;
      SF_CHECK(out.size() <= kMaxText, where, ": the text grows beyond ", kMaxText, " bytes");
    };
    if (regex) {
      for (auto [begin, end] : regex->find_all(text)) replace(begin, end);
    } else {
      for (size_t at = 0; (at = text.find(literal, at)) != std::string::npos; at += literal.size())
        replace(at, at + literal.size());
    }
    out.append(text, done);
    return out;
  }
  std::optional<Regex> regex;
  std::string literal, content, where;
};

// BERT's: https://github.com/google-research/bert, tokenization.py
struct Bert final : Normalizer {
  explicit Bert(const JsonPart& part)
      : clean(part.flag_or("clean_text", true)),
        chinese(part.flag_or("handle_chinese_chars", true)),
        lower(part.flag_or("lowercase", true)) {
    strip_accents = part.flag_or("strip_accents", lower);
  }
  static bool is_chinese(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }
  std::string apply(std::string text) const override {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      char32_t c = next_character(text, i);
      if (clean && (c == 0 || c == 0xFFFD || is_control(c))) continue;
      if (clean && is_whitespace(c)) c = ' ';
      bool apart = chinese && is_chinese(c);
      if (apart) out += ' ';
      append_character(out, c);
      if (apart) out += ' ';
    }
    if (strip_accents)
      out = filtered(normalize(out, NormalForm::NFD), [](char32_t c) { return !is_nonspacing_mark(c); });
    return lower ? lowercase(out) : out;
  }
  bool clean, chinese, lower, strip_accents;
};

struct NormalizerSequence final : Normalizer {
  explicit NormalizerSequence(const JsonPart& part) {
    for (auto& p : part["normalizers"].items()) parts.push_back(make_normalizer(p));
  }
  std::string apply(std::string text) const override {
    for (auto& p : parts) text = p->apply(std::move(text));
    return text;
  }
  std::vector<std::unique_ptr<Normalizer>> parts;
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonPart& part) {
  const std::string& type = part["type"].text();
  if (type == "Sequence") return std::make_unique<NormalizerSequence>(part);
  if (type == "NFC") return std::make_unique<Form>(NormalForm::NFC);
  if (type == "NFD") return std::make_unique<Form>(NormalForm::NFD);
  if (type == "NFKC") return std::make_unique<Form>(NormalForm::NFKC);
  if (type == "NFKD") return std::make_unique<Form>(NormalForm::NFKD);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Strip")
    return std::make_unique<StripSpace>(part.flag_or("strip_left", true), part.flag_or("strip_right", true));
  if (type == "Replace") return std::make_unique<Replace>(part);
  if (type == "Prepend") return std::make_unique<Prepend>(part["prepend"].text());
  if (type == "ByteLevel") return std::make_unique<ByteLevelText>();
  if (type == "BertNormalizer") return std::make_unique<Bert>(part);
  if (type == "Precompiled") return make_precompiled(part);
  part.refuse("the normalizer '", type, "' is not known");
}

}  // namespace sf::tokenizers
