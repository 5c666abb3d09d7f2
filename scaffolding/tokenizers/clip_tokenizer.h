// CLIPTokenizer: the tokenizer of CLIP's text encoders (Stable Diffusion 1, 2, XL), with transformers' files and ids.
// Text is brought to NFC (or cleaned as OpenAI did, TextCleaning), white space to single spaces, letters to lower case;
// words are split by CLIP's pattern and encoded by byte-level BPE whose last symbol ends in </w>.
// Thread-safe as Tokenizer is.
#pragma once
#include "scaffolding/tokenizers/tokenizer.h"

namespace sf::tokenizers {

struct BpeTrainOptions {
  int64_t vocab_size = 4096;      // with the 512 byte tokens and the two special ones
  int64_t min_frequency = 2;      // pairs that are rarer are not merged
  int64_t model_max_length = 77;  // tokens that the model will take, with the special ones
};

class CLIPTokenizer : public Tokenizer {
 public:
  // A folder with vocab.json and merges.txt, or tokenizer.json; tokenizer_config.json and special_tokens_map.json where
  // present (pad_token "!" is how SD 2 and SDXL's second encoder pad; without one it is end-of-text).
  // ValueError for wrong files.
  // `cleaning` stands over the file's "text_cleaning" ("transformers" or "openai", a key of our own).
  static CLIPTokenizer from_pretrained(const TokenizerFiles& files, std::optional<TextCleaning> cleaning = {});
  static CLIPTokenizer from_files(const std::string& vocab_path, const std::string& merges_path,
                                  TokenizerConfig config = {});
  // CLIP's own vocabulary of 49408 tokens, which is compiled in (clip_merges.h).
  static CLIPTokenizer built_in(TokenizerConfig config = {});

  // vocab.json, merges.txt, tokenizer_config.json and special_tokens_map.json; transformers reads them.
  FileTexts files() const override;
  const char* class_name() const override { return "CLIPTokenizer"; }

  int64_t bos_token_id() const { return *token_to_id(config().bos_token->content); }
  int64_t eos_token_id() const { return *token_to_id(config().eos_token->content); }
  int64_t pad_token_id() const { return *token_to_id(config().pad_token->content); }

 private:
  explicit CLIPTokenizer(std::unique_ptr<Parts> parts);
  static CLIPTokenizer make(std::unique_ptr<Parts> parts, TokenizerConfig config, const std::string& where);
  static CLIPTokenizer of_files(const io::Bytes& vocab, const io::Bytes& merges, TokenizerConfig config);
  friend CLIPTokenizer train_bpe(const std::vector<std::string>& texts, const BpeTrainOptions& options);
};

// A vocabulary of one's own from texts, by merging the most frequent pair again and again (Sennrich et al. 2016,
// section 3.2).
// Ties go to the smaller ids, so that equal texts in any order give equal files. ValueError for sizes that cannot be.
CLIPTokenizer train_bpe(const std::vector<std::string>& texts, const BpeTrainOptions& options = {});

}  // namespace sf::tokenizers
