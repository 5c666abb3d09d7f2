// train_words: a T5 tokenizer from texts, as the tokenizer.json that transformers would read.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "scaffolding/io/json.h"
#include "scaffolding/tokenizers/t5_tokenizer.h"
#include "scaffolding/tokenizers/tokenizer_parts.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

constexpr const char* kWho = "train_words";
constexpr const char* kMark = "\xE2\x96\x81";  // stands for a space
constexpr double kSpelled = 4;                 // how much less likely than the rarest word a single character is

constexpr const char* kDocument = R"json({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [],
  "normalizer": {"type": "Lowercase"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "WhitespaceSplit"},
    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true}]},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}},
             {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
    "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
  "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true},
  "model": {"type": "Unigram", "unk_id": 2, "vocab": [], "byte_fallback": false}
})json";
constexpr const char* kSpecial[] = {"<pad>", "</s>", "<unk>"};

bool is_mark(const std::string& character) {
  return character.size() == 1 && std::strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", character[0]) != nullptr;
}

struct Counts {
  std::map<std::string, int64_t> words;  // and marks of punctuation
  std::map<std::string, int64_t> characters;
  int64_t all = 0;

  void count(const std::string& piece) {
    ++words[piece];
    ++all;
  }
  // piece: one word with its mark before it and whatever punctuation is in it.
  void add(const std::string& piece) {
    std::string run;
    for (size_t i = 0; i < piece.size();) {
      const std::string character = piece.substr(i, character_bytes(piece, i));
      i += character.size();
      ++characters[character];
      if (!is_mark(character)) {
        run += character;
        continue;
      }
      if (!run.empty()) count(run);
      run.clear();
      count(character);
    }
    if (!run.empty()) count(run);
  }
};

}  // namespace

T5Tokenizer train_words(const std::vector<std::string>& texts, const WordTrainOptions& options) {
  SF_CHECK(options.vocab_size > 0 && options.vocab_size <= 10'000'000, kWho,
           ": vocab_size must be between 1 and 10000000, got ", options.vocab_size);
  SF_CHECK(options.model_max_length > 1, kWho, ": model_max_length must be above 1, got ", options.model_max_length);
  Json document = Json::parse(kDocument);
  const auto normalizer = make_normalizer({document["normalizer"], kWho});
  const auto pre_tokenizer = make_pre_tokenizer({document["pre_tokenizer"], kWho});
  Counts counts;
  ++counts.characters[kMark];
  for (auto& text : texts) {
    require_utf8(text, kWho);
    for (auto& piece : pre_tokenizer->apply({{normalizer->apply(text), true}})) counts.add(piece.text);
  }
  SF_CHECK(counts.all > 0, kWho, ": the texts have no words");

  std::vector<std::pair<std::string, int64_t>> words;
  for (auto& [word, n] : counts.words)
    if (!counts.characters.count(word)) words.emplace_back(word, n);
  std::stable_sort(words.begin(), words.end(), [](auto& a, auto& b) { return a.second > b.second; });
  const int64_t room = options.vocab_size - int64_t(counts.characters.size()) - int64_t(std::size(kSpecial));
  SF_CHECK(room >= 0, kWho, ": vocab_size ", options.vocab_size, " is too small for the texts' ",
           counts.characters.size(), " characters and ", std::size(kSpecial), " special tokens");
  words.resize(std::min(words.size(), size_t(room)));

  const auto score = [&](int64_t n) { return std::log(double(n) / double(counts.all)); };
  Json& vocabulary = document["model"]["vocab"];
  for (const char* token : kSpecial) {
    document["added_tokens"].push_back({{"id", int64_t(vocabulary.size())},
                                        {"content", token},
                                        {"single_word", false},
                                        {"lstrip", false},
                                        {"rstrip", false},
                                        {"normalized", false},
                                        {"special", true}});
    vocabulary.push_back({token, 0.0});
  }
  for (auto& [word, n] : words) vocabulary.push_back({word, score(n)});
  for (auto& [character, n] : counts.characters)
    vocabulary.push_back({character, is_mark(character) ? score(counts.words.at(character)) : score(1) - kSpelled});

  io::Bytes file = io::Bytes::take(io::json_text(document, 1) + "\n", kWho);
  auto parts = read_tokenizer_json(file);
  auto special = [](const char* content) {
    return AddedToken{.content = content, .normalized = false, .special = true};
  };
  parts->config.pad_token = special(kSpecial[0]);
  parts->config.eos_token = special(kSpecial[1]);
  parts->config.unk_token = special(kSpecial[2]);
  parts->config.model_max_length = options.model_max_length;
  parts->add_configured(kWho);
  return T5Tokenizer(std::move(parts), std::move(file), "tokenizer.json", 0);
}

}  // namespace sf::tokenizers
