// T5Tokenizer: the tokenizer of T5's encoders (PixArt, SD 3, FLUX), with transformers' files and ids: SentencePiece's
// normalization and Unigram model over the text's words, and </s> behind. Thread-safe as Tokenizer is.
#pragma once
#include "scaffolding/tokenizers/tokenizer.h"

namespace sf::tokenizers {

struct WordTrainOptions {
  int64_t vocab_size = 4096;       // at most, with the three special tokens
  int64_t model_max_length = 226;  // tokens that the model will take, with the special one
};

class T5Tokenizer : public Tokenizer {
 public:
  static constexpr int64_t kExtraIds = 100;

  // A folder with tokenizer.json, or spiece.model; tokenizer_config.json and special_tokens_map.json where present.
  // ValueError for wrong files.
  static T5Tokenizer from_pretrained(const TokenizerFiles& files);
  // spiece.model. extra_ids: tokens <extra_id_0>, <extra_id_1>, ... behind its vocabulary, the first with the largest
  // id, of which those count that it has.
  static T5Tokenizer from_sentencepiece(const io::Bytes& file, TokenizerConfig config = {},
                                        int64_t extra_ids = kExtraIds);

  // The file that was read, tokenizer_config.json and special_tokens_map.json; transformers reads them.
  FileTexts files() const override;
  const char* class_name() const override { return "T5Tokenizer"; }

 private:
  T5Tokenizer(std::unique_ptr<Parts> parts, io::Bytes file, const char* file_name, int64_t extra_ids);
  friend T5Tokenizer train_words(const std::vector<std::string>& texts, const WordTrainOptions& options);
  io::Bytes file_;
  const char* file_name_;
  int64_t extra_ids_;
};

// A vocabulary of one's own: the texts' words in lower case, the most frequent ones first, each a piece of a Unigram
// model whose score is the logarithm of its share; marks of punctuation; and every character, by which other words are
// spelled. Equal texts in any order give equal files. ValueError for sizes that cannot be, and for texts whose
// characters alone are more than vocab_size.
T5Tokenizer train_words(const std::vector<std::string>& texts, const WordTrainOptions& options = {});

}  // namespace sf::tokenizers
