#include "scaffolding/tokenizers/t5_tokenizer.h"

#include <set>

#include "scaffolding/tokenizers/pretrained.h"
#include "scaffolding/tokenizers/sentencepiece_model.h"
#include "scaffolding/tokenizers/tokenizer_parts.h"

namespace sf::tokenizers {

namespace {

constexpr int64_t kMostExtraIds = 100'000;
constexpr const char* kExtraId = "<extra_id_";
constexpr const char *kJson = "tokenizer.json", *kSpiece = "spiece.model";

// As transformers' T5Tokenizer builds them; SentencePiece itself makes single spaces of white space and a mark of each.
constexpr const char* kStages = R"json({
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "WhitespaceSplit"},
    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true}]},
  "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true}
})json";
constexpr const char* kByteDecoder = R"json({"decoder": {"type": "Sequence", "decoders": [
  {"type": "ByteFallback"},
  {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": true}]}})json";

AddedToken special(std::string content) {
  return {.content = std::move(content), .normalized = false, .special = true};
}

void name_special_tokens(TokenizerConfig& config) {
  if (!config.eos_token) config.eos_token = special("</s>");
  if (!config.unk_token) config.unk_token = special("<unk>");
  if (!config.pad_token) config.pad_token = special("<pad>");
}

int64_t read_extra_ids(const TokenizerFiles& files) {
  if (!files.has("tokenizer_config.json")) return T5Tokenizer::kExtraIds;
  Json document = parse_json(files.read("tokenizer_config.json"));
  JsonPart root(document, files.path("tokenizer_config.json"));
  return root.has("extra_ids") ? root["extra_ids"].integer(0, kMostExtraIds) : T5Tokenizer::kExtraIds;
}

}  // namespace

T5Tokenizer::T5Tokenizer(std::unique_ptr<Parts> parts, io::Bytes file, const char* file_name, int64_t extra_ids)
    : Tokenizer(std::move(parts)), file_(std::move(file)), file_name_(file_name), extra_ids_(extra_ids) {}

T5Tokenizer T5Tokenizer::from_sentencepiece(const io::Bytes& file, TokenizerConfig config, int64_t extra_ids) {
  SF_CHECK(extra_ids >= 0 && extra_ids <= kMostExtraIds, "T5Tokenizer: extra_ids must be between 0 and ", kMostExtraIds,
           ", got ", extra_ids);
  SentencePieceModel model = read_sentencepiece_model(file);
  SF_CHECK(model.kind == SentencePieceModel::Kind::Unigram, file.name,
           ": T5's vocabularies are Unigram models, and this is one of type ", int(model.kind));
  auto parts = std::make_unique<Parts>();
  UnigramOptions unigram{.unk_id = model.unk_id, .byte_fallback = model.byte_fallback, .where = file.name};
  std::set<std::string_view> own;
  for (auto& piece : model.pieces) {
    unigram.pieces.emplace_back(piece.text, piece.score);
    if (piece.text.starts_with(kExtraId)) own.insert(piece.text);
  }
  std::vector<std::string> extra;
  for (int64_t i = extra_ids; i-- > 0;) {
    extra.push_back(kExtraId + std::to_string(i) + ">");
    if (!own.count(extra.back())) unigram.pieces.emplace_back(extra.back(), 0.0);
  }
  parts->model = make_unigram(std::move(unigram));
  if (!model.precompiled_charsmap.empty())
    parts->normalizer = make_precompiled(model.precompiled_charsmap, file.name + ": precompiled_charsmap");
  Json stages = Json::parse(kStages);
  if (model.byte_fallback) stages.update(Json::parse(kByteDecoder));
  parts->read_stages({stages, "T5Tokenizer"});

  name_special_tokens(config);
  parts->config = std::move(config);
  parts->add_configured(file.name);
  for (auto& piece : model.pieces) {
    const bool control = piece.type == SentencePiece::Type::Control;
    if ((control || piece.type == SentencePiece::Type::UserDefined) && !parts->added.id(piece.text))
      parts->add({.content = piece.text, .normalized = false, .special = control}, -1, file.name);
  }
  for (auto& token : extra)
    if (!parts->added.id(token)) parts->add(special(token), -1, file.name);
  parts->added.index(parts->normalizer.get());
  parts->after = {*parts->id(parts->config.eos_token->content)};
  return T5Tokenizer(std::move(parts), file, kSpiece, extra_ids);
}

T5Tokenizer T5Tokenizer::from_pretrained(const TokenizerFiles& files) {
  TokenizerConfig config = read_tokenizer_config(files);
  if (!files.has(kJson)) {
    SF_CHECK_AS(RuntimeError, files.has(kSpiece), "T5Tokenizer: '", files.where(),
                "' has neither tokenizer.json nor spiece.model");
    return from_sentencepiece(files.read(kSpiece), std::move(config), read_extra_ids(files));
  }
  io::Bytes file = files.read(kJson);
  auto parts = read_tokenizer_json(file);
  name_special_tokens(config);
  parts->config = std::move(config);
  parts->add_configured(file.name);
  return T5Tokenizer(std::move(parts), std::move(file), kJson, read_extra_ids(files));
}

FileTexts T5Tokenizer::files() const {
  TokenizerConfig described = config();
  described.added_tokens = added_tokens();
  FileTexts out = tokenizer_config_files(described, "T5Tokenizer", {{"extra_ids", extra_ids_}});
  out.emplace(file_name_, whole_text(file_));
  return out;
}

SF_TOKENIZER(T5Tokenizer, "T5Tokenizer, T5TokenizerFast", "spiece.model");

}  // namespace sf::tokenizers
