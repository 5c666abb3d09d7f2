// The stages of a Hugging Face tokenizer.json around its model: Normalizer, PreTokenizer, Decoder. Named and behaving
// as in the tokenizers package. Made once from a file; const use is thread-safe. Texts are valid UTF-8.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "scaffolding/tokenizers/json_part.h"

namespace sf::tokenizers {

constexpr size_t kMaxText = 64'000'000;  // bytes that a text may grow to on its way to the model

struct Normalizer {
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;
};
std::unique_ptr<Normalizer> make_normalizer(const JsonPart& part);
std::unique_ptr<Normalizer> make_precompiled(const JsonPart& part);  // SentencePiece's charsmap
std::unique_ptr<Normalizer> make_precompiled(const std::string& charsmap, const std::string& where);

// A part of the text that the model sees alone.
struct Piece {
  std::string text;
  bool first;  // it stands at the text's very beginning
};
struct PreTokenizer {
  virtual ~PreTokenizer() = default;
  virtual std::vector<Piece> apply(std::vector<Piece> pieces) const = 0;
};
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonPart& part);

struct Decoder {
  virtual ~Decoder() = default;
  virtual std::vector<std::string> apply(std::vector<std::string> tokens) const = 0;
};
std::unique_ptr<Decoder> make_decoder(const JsonPart& part);

}  // namespace sf::tokenizers
