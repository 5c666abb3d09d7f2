// Qwen2Tokenizer: the tokenizer of Qwen 2, 2.5 and 3 (Z-Image's prompts), with transformers' files and ids: NFC, words
// split by Qwen's pattern, byte-level BPE, and nothing around a text. Thread-safe as Tokenizer is.
#pragma once
#include "scaffolding/tokenizers/tokenizer.h"

namespace sf::tokenizers {

class Qwen2Tokenizer : public Tokenizer {
 public:
  // A folder with tokenizer.json, or vocab.json and merges.txt; tokenizer_config.json and special_tokens_map.json where
  // present. ValueError for wrong files.
  static Qwen2Tokenizer from_pretrained(const TokenizerFiles& files);

  // The files that were read, tokenizer_config.json and special_tokens_map.json; transformers reads them.
  FileTexts files() const override;
  const char* class_name() const override { return "Qwen2Tokenizer"; }

 private:
  using Sources = std::vector<std::pair<const char*, io::Bytes>>;
  Qwen2Tokenizer(std::unique_ptr<Parts> parts, Sources sources, std::string chat_template);
  Sources sources_;
  std::string chat_template_;  // of tokenizer_config.json, or empty: kept, not run
};

// One message of a user as the beginning of a chat in which the model answers next: what transformers'
// apply_chat_template makes of it with Qwen3's template, add_generation_prompt and enable_thinking. The template is a
// program in Jinja; this is the one text that an encoder of prompts needs of it, whatever a folder's template says.
// ValueError for a tokenizer without the two tokens that stand around a message.
std::string user_turn(const Tokenizer& tokenizer, std::string_view message);

}  // namespace sf::tokenizers
