#include "scaffolding/tokenizers/clip_tokenizer.h"

#include "scaffolding/io/json.h"
#include "scaffolding/tokenizers/bpe_files.h"
#include "scaffolding/tokenizers/clip_merges.h"
#include "scaffolding/tokenizers/html_unescape.h"
#include "scaffolding/tokenizers/pretrained.h"
#include "scaffolding/tokenizers/tokenizer_parts.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

constexpr std::string_view kSuffix = "</w>";

// As transformers' CLIPTokenizer builds them.
constexpr const char* kStages = R"json({
  "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Lowercase"}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "Removed", "invert": true, "pattern": {"Regex":
      "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"}},
    {"type": "ByteLevel", "add_prefix_space": false}]},
  "decoder": {"type": "ByteLevel"}
})json";

// OpenAI's simple_tokenizer.py: ftfy is left out (it mends texts whose bytes were read in the wrong encoding).
struct OpenAICleaning final : Normalizer {
  std::string apply(std::string text) const override {
    text = html_unescape(html_unescape(text));
    std::string spaced;
    for (size_t i = 0; i < text.size();) {
      char32_t c = next_character(text, i);
      if (!is_whitespace(c)) append_character(spaced, c);
      else if (!spaced.ends_with(' ')) spaced += ' ';
    }
    return lowercase(spaced);
  }
};

struct CLIPDecoder final : Decoder {
  explicit CLIPDecoder(std::unique_ptr<Decoder> b) : bytes(std::move(b)) {}
  std::vector<std::string> apply(std::vector<std::string> tokens) const override {
    std::string all, text;
    for (auto& t : bytes->apply(std::move(tokens))) all += t;
    for (size_t i = 0; i < all.size();) {
      bool end = std::string_view(all).substr(i).starts_with(kSuffix);
      text += end ? ' ' : all[i];
      i += end ? kSuffix.size() : 1;
    }
    return {stripped(text)};
  }
  static std::string stripped(std::string_view s) {
    size_t begin = 0, end = 0;
    bool any = false;
    for (size_t i = 0; i < s.size();) {
      size_t at = i;
      if (is_whitespace(next_character(s, i))) continue;
      if (!any) begin = at;
      any = true;
      end = i;
    }
    return any ? std::string(s.substr(begin, end - begin)) : "";
  }
  std::unique_ptr<Decoder> bytes;
};

std::unique_ptr<Tokenizer::Parts> bpe_parts(Vocabulary vocabulary, const Merges& merges, const TokenizerConfig& config,
                                            const std::string& where, const std::string& merges_from) {
  auto parts = std::make_unique<Tokenizer::Parts>();
  std::string unk = config.unk_token ? config.unk_token->content : "<|endoftext|>";
  SF_CHECK(vocabulary.id(unk), where, ": the vocabulary has no '", unk, "'");
  parts->model =
      std::make_unique<Bpe>(std::move(vocabulary), merges,
                            BpeOptions{.unk_token = unk, .end_of_word_suffix = std::string(kSuffix)}, merges_from);
  return parts;
}

}  // namespace

CLIPTokenizer::CLIPTokenizer(std::unique_ptr<Parts> parts) : Tokenizer(std::move(parts)) {}

CLIPTokenizer CLIPTokenizer::make(std::unique_ptr<Parts> parts, TokenizerConfig config, const std::string& where) {
  Json stages = Json::parse(kStages);
  parts->read_stages({stages, "CLIPTokenizer"});
  if (config.text_cleaning == TextCleaning::OpenAI) parts->normalizer = std::make_unique<OpenAICleaning>();
  parts->decoder = std::make_unique<CLIPDecoder>(std::move(parts->decoder));
  auto otherwise = [](std::optional<AddedToken>& token, const char* content) {
    if (!token) token = AddedToken{.content = content, .normalized = false, .special = true};
  };
  otherwise(config.bos_token, "<|startoftext|>");
  otherwise(config.eos_token, "<|endoftext|>");
  otherwise(config.unk_token, "<|endoftext|>");
  otherwise(config.pad_token, "<|endoftext|>");
  if (config.model_max_length == INT64_MAX) config.model_max_length = 77;
  for (auto* token : {&*config.bos_token, &*config.eos_token})
    SF_CHECK(parts->model->vocabulary.id(token->content), where, ": the vocabulary has no '", token->content, "'");
  parts->config = std::move(config);
  parts->add_configured(where);
  parts->before = {*parts->id(parts->config.bos_token->content)};
  parts->after = {*parts->id(parts->config.eos_token->content)};
  return CLIPTokenizer(std::move(parts));
}

CLIPTokenizer CLIPTokenizer::of_files(const io::Bytes& vocab, const io::Bytes& merges, TokenizerConfig config) {
  Json document = parse_json(vocab);
  auto parts = bpe_parts(read_vocabulary({document, vocab.name}), read_merges(merges), config, vocab.name, merges.name);
  return make(std::move(parts), std::move(config), vocab.name);
}

CLIPTokenizer CLIPTokenizer::from_files(const std::string& vocab_path, const std::string& merges_path,
                                        TokenizerConfig config) {
  return of_files(io::Bytes::map(vocab_path), io::Bytes::map(merges_path), std::move(config));
}

CLIPTokenizer CLIPTokenizer::built_in(TokenizerConfig config) {
  constexpr const char* kWhere = "CLIPTokenizer";
  ClipVocabulary clip = clip_vocabulary();
  auto parts = bpe_parts(std::move(clip.vocabulary), clip.merges, config, kWhere, kWhere);
  return make(std::move(parts), std::move(config), kWhere);
}

CLIPTokenizer CLIPTokenizer::from_pretrained(const TokenizerFiles& files, std::optional<TextCleaning> cleaning) {
  TokenizerConfig config = read_tokenizer_config(files);
  config.text_cleaning = cleaning.value_or(config.text_cleaning);
  if (files.has("vocab.json") && files.has("merges.txt"))
    return of_files(files.read("vocab.json"), files.read("merges.txt"), std::move(config));
  if (!files.has("tokenizer.json") && !config.built_in_vocabulary.empty()) {
    SF_CHECK(config.built_in_vocabulary == "clip", files.path("tokenizer_config.json"),
             ": built_in_vocabulary must be clip, got '", config.built_in_vocabulary, "'");
    return built_in(std::move(config));
  }
  SF_CHECK_AS(RuntimeError, files.has("tokenizer.json"), "CLIPTokenizer: '", files.where(),
              "' has neither vocab.json and merges.txt nor tokenizer.json");
  const std::string json = files.path("tokenizer.json");
  Json document = parse_json(files.read("tokenizer.json"));
  JsonPart root(document, json);
  auto parts = std::make_unique<Parts>();
  auto bpe = make_bpe(root["model"]);
  if (bpe->options().end_of_word_suffix != kSuffix)
    root["model"].refuse("CLIP's words end in '", kSuffix, "', got '", bpe->options().end_of_word_suffix, "'");
  parts->model = std::move(bpe);
  if (root.has("added_tokens"))
    for (auto& t : root["added_tokens"].items())
      parts->add(read_added_token(t, false), t["id"].integer(0, INT32_MAX - 1), t.where());
  return make(std::move(parts), std::move(config), json);
}

FileTexts CLIPTokenizer::files() const {
  std::string vocab = "{";
  for (auto& [id, token] : vocabulary(false))
    vocab += (vocab.size() > 1 ? "," : "") + io::json_text(Json(token)) + ":" + std::to_string(id);
  vocab += "}\n";
  TokenizerConfig described = config();
  described.added_tokens = added_tokens();
  FileTexts out = tokenizer_config_files(described, "CLIPTokenizer");
  out.emplace("vocab.json", std::move(vocab));
  out.emplace("merges.txt", merges_text(static_cast<const Bpe&>(*parts_->model).merges()));
  return out;
}

SF_TOKENIZER(CLIPTokenizer, "CLIPTokenizer, CLIPTokenizerFast", "merges.txt");

}  // namespace sf::tokenizers
