// GemmaTokenizer: the tokenizer of Gemma 1 to 3 (LTX-2's prompts), with transformers' files and ids: spaces become
// "\u2581", BPE over the whole text without words, bytes for unknown characters, <bos> before a text, and padding at
// the left. Thread-safe as Tokenizer is.
#pragma once
#include "scaffolding/tokenizers/tokenizer.h"

namespace sf::tokenizers {

class GemmaTokenizer : public Tokenizer {
 public:
  // A folder with tokenizer.json; tokenizer_config.json and special_tokens_map.json where present. What stands around a
  // text is what tokenizer.json's post_processor says: as in transformers, add_bos_token and add_eos_token of the
  // config change nothing beside it. RuntimeError for a folder with SentencePiece's tokenizer.model alone, ValueError
  // for wrong files.
  static GemmaTokenizer from_pretrained(const TokenizerFiles& files);

  // The files that were read, tokenizer_config.json and special_tokens_map.json; transformers reads them.
  FileTexts files() const override;
  const char* class_name() const override { return "GemmaTokenizer"; }

 private:
  using Sources = std::vector<std::pair<const char*, io::Bytes>>;
  GemmaTokenizer(std::unique_ptr<Parts> parts, Sources sources, std::string chat_template);
  Sources sources_;
  std::string chat_template_;  // of tokenizer_config.json, or empty: kept, not run
};

}  // namespace sf::tokenizers
