#include "scaffolding/tokenizers/text_tokenizer.h"

#include <filesystem>

#include "scaffolding/io/config.h"
#include "scaffolding/tokenizers/json_part.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

constexpr const char* kWho = "TextTokenizer";
constexpr const char* kFile = "tokenizer_config.json";

// FNV-1a (Fowler, Noll and Vo) of 64 bits: byte by byte, so that no machine's byte order or word size is in it.
uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

TextTokenizer::TextTokenizer(int64_t vocab_size, int64_t max_length)
    : vocab_size_(vocab_size), max_length_(max_length) {
  SF_CHECK(vocab_size > kFirstWord && vocab_size <= kMostIds, kWho, ": vocab_size must be from ", kFirstWord + 1,
           " to ", kMostIds, ", since ", kFirstWord, " ids are no words, got ", vocab_size);
  SF_CHECK(max_length > 2 && max_length <= kMostTokens, kWho, ": max_length must be from 3 to ", kMostTokens,
           ", since a text's two ends take a token each, got ", max_length);
}

TextTokenizer TextTokenizer::from_pretrained(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / kFile).string();
  const Json document = parse_json(io::Bytes::map(path));
  const JsonPart root(document, path);
  const std::string name = root["tokenizer_class"].text();
  if (name != kWho) root["tokenizer_class"].refuse("must be ", kWho, ", got '", name, "'");
  return TextTokenizer(root["vocab_size"].integer(kFirstWord + 1, kMostIds),
                       root["model_max_length"].integer(3, kMostTokens));
}

void TextTokenizer::save_pretrained(const std::string& folder) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  SF_CHECK_AS(RuntimeError, !error, "save_pretrained: '", folder, "' cannot be made: ", error.message());
  io::write_config_file(io::Object::container(io::Object::Dict, {"tokenizer_class", kWho, "vocab_size", vocab_size_,
                                                                 "model_max_length", max_length_}),
                        (std::filesystem::path(folder) / kFile).string());
}

std::vector<std::string> TextTokenizer::words(std::string_view text) {
  require_utf8(text, kWho);
  const std::string clean = normalize(lowercase(text), NormalForm::NFC);
  std::vector<std::string> out;
  bool within = false;  // a word that goes on with the next letter
  for (size_t at = 0; at < clean.size();) {
    const size_t begin = at;
    const char32_t c = next_character(clean, at);
    const bool letter = is_word(c);
    if (!is_whitespace(c) && !is_control(c)) {
      if (!letter || !within) out.emplace_back();
      out.back().append(clean, begin, at - begin);
    }
    within = letter;
  }
  return out;
}

int64_t TextTokenizer::id_of(std::string_view word) const {
  return kFirstWord + int64_t(fnv1a(word) % uint64_t(vocab_size_ - kFirstWord));
}

Encoding TextTokenizer::encode(std::string_view text) const {
  Encoding out;
  out.ids.assign(size_t(max_length_), kPad), out.attention_mask.assign(size_t(max_length_), 0);
  size_t n = 0;
  out.ids[n++] = kBegin;
  for (auto& word : words(text)) {
    if (n + 1 == size_t(max_length_)) break;
    out.ids[n++] = id_of(word);
  }
  out.ids[n++] = kEnd;
  std::fill_n(out.attention_mask.begin(), n, 1);
  return out;
}

}  // namespace sf::tokenizers
