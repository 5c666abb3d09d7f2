// The stages of a Tokenizer. Private: CLIPTokenizer puts them together from its own files.
#pragma once
#include <memory>
#include <vector>

#include "scaffolding/tokenizers/added_tokens.h"
#include "scaffolding/tokenizers/model.h"
#include "scaffolding/tokenizers/stages.h"
#include "scaffolding/tokenizers/tokenizer.h"

namespace sf::tokenizers {

struct Tokenizer::Parts {
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Model> model;
  std::unique_ptr<Decoder> decoder;
  std::vector<int64_t> before, after;  // special tokens around a text
  AddedTokens added;
  EncodeOptions defaults;
  TokenizerConfig config;

  // Everything but model and added tokens, from the members of a tokenizer.json that are there.
  void read_stages(const JsonPart& root);
  void read_post_processor(const JsonPart& part);
  // An id of -1 asks for the vocabulary's, or the next free one.
  // ValueError naming `where` for an id that is another token's.
  int64_t add(const AddedToken& token, int64_t id, const std::string& where);
  void add_configured(const std::string& where);  // the config's tokens
  std::optional<int64_t> id(std::string_view token) const;
  int64_t next_id() const;
  void tokens_of(std::string_view text, std::vector<int64_t>& ids) const;
  void pieces_of(std::string_view text, bool first, std::vector<int64_t>& ids) const;
};

// tokenizer_config.json's chat_template, or empty: kept with tokenizers of language models, not run.
std::string read_chat_template(const TokenizerFiles& files);
std::string whole_text(const io::Bytes& file);
AddedToken read_added_token(const JsonPart& part, bool special);
std::unique_ptr<Tokenizer::Parts> read_tokenizer_json(const io::Bytes& file);
// tokenizer_config.json and special_tokens_map.json; more: entries of one class alone.
FileTexts tokenizer_config_files(const TokenizerConfig& config, const std::string& tokenizer_class,
                                 const Json& more = Json::object());

}  // namespace sf::tokenizers
