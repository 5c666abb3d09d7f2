#include "scaffolding/tokenizers/qwen2_tokenizer.h"

#include "scaffolding/tokenizers/bpe_files.h"
#include "scaffolding/tokenizers/pretrained.h"
#include "scaffolding/tokenizers/tokenizer_parts.h"

namespace sf::tokenizers {

namespace {

constexpr const char *kQwenJson = "tokenizer.json", *kQwenVocab = "vocab.json", *kQwenMerges = "merges.txt",
                     *kQwenTemplate = "chat_template.jinja", *kQwenConfig = "tokenizer_config.json";

// As transformers' Qwen2Tokenizer builds them.
constexpr const char* kQwenStages = R"json({
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|)json"
                                    R"json( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}]},
  "decoder": {"type": "ByteLevel"}
})json";

void name_qwen_tokens(TokenizerConfig& config) {
  for (auto* token : {&config.eos_token, &config.unk_token, &config.pad_token})
    if (!*token) *token = AddedToken{.content = "<|endoftext|>", .normalized = false, .special = true};
}

}  // namespace

Qwen2Tokenizer::Qwen2Tokenizer(std::unique_ptr<Parts> parts, Sources sources, std::string chat_template)
    : Tokenizer(std::move(parts)), sources_(std::move(sources)), chat_template_(std::move(chat_template)) {}

Qwen2Tokenizer Qwen2Tokenizer::from_pretrained(const TokenizerFiles& files) {
  TokenizerConfig config = read_tokenizer_config(files);
  name_qwen_tokens(config);
  std::unique_ptr<Parts> parts;
  Sources sources;
  if (files.has(kQwenJson)) {
    sources.emplace_back(kQwenJson, files.read(kQwenJson));
    parts = read_tokenizer_json(sources.back().second);
  } else {
    SF_CHECK_AS(RuntimeError, files.has(kQwenVocab) && files.has(kQwenMerges), "Qwen2Tokenizer: '", files.where(),
                "' has neither tokenizer.json nor vocab.json and merges.txt");
    sources.emplace_back(kQwenVocab, files.read(kQwenVocab));
    sources.emplace_back(kQwenMerges, files.read(kQwenMerges));
    const io::Bytes &vocab = sources[0].second, &merges = sources[1].second;
    Json document = parse_json(vocab), stages = Json::parse(kQwenStages);
    parts = std::make_unique<Parts>();
    parts->model =
        std::make_unique<Bpe>(read_vocabulary({document, vocab.name}), read_merges(merges), BpeOptions{}, merges.name);
    parts->read_stages({stages, "Qwen2Tokenizer"});
  }
  if (files.has(kQwenTemplate)) sources.emplace_back(kQwenTemplate, files.read(kQwenTemplate));
  parts->config = std::move(config);
  parts->add_configured(files.path(kQwenConfig));
  return Qwen2Tokenizer(std::move(parts), std::move(sources), read_chat_template(files));
}

FileTexts Qwen2Tokenizer::files() const {
  TokenizerConfig described = config();
  described.added_tokens = added_tokens();
  Json more = Json::object();
  if (!chat_template_.empty()) more["chat_template"] = chat_template_;
  FileTexts out = tokenizer_config_files(described, "Qwen2Tokenizer", more);
  for (auto& [name, file] : sources_) out.emplace(name, whole_text(file));
  return out;
}

std::string user_turn(const Tokenizer& tokenizer, std::string_view message) {
  const std::string begin = "<|im_start|>", end = "<|im_end|>";
  for (auto& token : {begin, end})
    SF_CHECK(tokenizer.token_to_id(token), "prompt: the tokenizer has no '", token,
             "', which stands around the messages of a chat with Qwen");
  return begin + "user\n" + std::string(message) + end + "\n" + begin + "assistant\n";
}

SF_TOKENIZER(Qwen2Tokenizer, "Qwen2Tokenizer, Qwen2TokenizerFast", "chat_template.jinja");

}  // namespace sf::tokenizers
