#include "scaffolding/tokenizers/gemma_tokenizer.h"

#include "scaffolding/tokenizers/pretrained.h"
#include "scaffolding/tokenizers/tokenizer_parts.h"

namespace sf::tokenizers {

namespace {

constexpr const char *kGemmaJson = "tokenizer.json", *kGemmaPieces = "tokenizer.model",
                     *kGemmaTemplate = "chat_template.jinja", *kGemmaConfig = "tokenizer_config.json";

void name_gemma_tokens(TokenizerConfig& config) {
  for (auto [token, content] : {std::pair{&config.bos_token, "<bos>"},
                                {&config.eos_token, "<eos>"},
                                {&config.unk_token, "<unk>"},
                                {&config.pad_token, "<pad>"}})
    if (!*token) *token = AddedToken{.content = content, .normalized = false, .special = true};
}

bool says_padding_side(const TokenizerFiles& files) {
  return files.has(kGemmaConfig) && parse_json(files.read(kGemmaConfig)).contains("padding_side");
}

}  // namespace

GemmaTokenizer::GemmaTokenizer(std::unique_ptr<Parts> parts, Sources sources, std::string chat_template)
    : Tokenizer(std::move(parts)), sources_(std::move(sources)), chat_template_(std::move(chat_template)) {}

GemmaTokenizer GemmaTokenizer::from_pretrained(const TokenizerFiles& files) {
  SF_CHECK_AS(
      RuntimeError, files.has(kGemmaJson), "GemmaTokenizer: '", files.where(), "' has no tokenizer.json",
      files.has(kGemmaPieces) ? "; its tokenizer.model is not read: transformers' save_pretrained writes both" : "");
  TokenizerConfig config = read_tokenizer_config(files);
  name_gemma_tokens(config);
  if (!says_padding_side(files)) config.padding_side = Side::Left;
  Sources sources{{kGemmaJson, files.read(kGemmaJson)}};
  auto parts = read_tokenizer_json(sources.back().second);
  for (const char* name : {kGemmaTemplate, kGemmaPieces})
    if (files.has(name)) sources.emplace_back(name, files.read(name));
  parts->config = std::move(config);
  parts->add_configured(files.path(kGemmaConfig));
  return GemmaTokenizer(std::move(parts), std::move(sources), read_chat_template(files));
}

FileTexts GemmaTokenizer::files() const {
  TokenizerConfig described = config();
  described.added_tokens = added_tokens();
  Json more = Json::object();
  if (!chat_template_.empty()) more["chat_template"] = chat_template_;
  FileTexts out = tokenizer_config_files(described, "GemmaTokenizer", more);
  for (auto& [name, file] : sources_) out.emplace(name, whole_text(file));
  return out;
}

SF_TOKENIZER(GemmaTokenizer, "GemmaTokenizer, GemmaTokenizerFast", "tokenizer.model");

}  // namespace sf::tokenizers
