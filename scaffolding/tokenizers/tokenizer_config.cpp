// tokenizer_config.json and special_tokens_map.json.
#include <algorithm>
#include <charconv>

#include "scaffolding/io/json.h"
#include "scaffolding/tokenizers/tokenizer_parts.h"

namespace sf::tokenizers {

namespace {

constexpr std::pair<const char*, std::optional<AddedToken> TokenizerConfig::*> kSpecial[] = {
    {"bos_token", &TokenizerConfig::bos_token},
    {"eos_token", &TokenizerConfig::eos_token},
    {"unk_token", &TokenizerConfig::unk_token},
    {"pad_token", &TokenizerConfig::pad_token}};

// A string, or an object with a string's flags.
AddedToken special_token(const JsonPart& part) {
  if (part.json().is_object()) {
    AddedToken t = read_added_token(part, true);
    t.special = true;
    return t;
  }
  return {.content = part.text(), .normalized = false, .special = true};
}

void read_special(const JsonPart& root, TokenizerConfig& config) {
  for (auto& [key, member] : kSpecial)
    if (!(config.*member) && root.has(key)) config.*member = special_token(root[key]);
}

// Special tokens without a role; their ids are the vocabulary's, or the next free ones.
void read_extra(const JsonPart& root, TokenizerConfig& config) {
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    // newer files may have an object of names for attributes here
    if (!root.has(key) || !root[key].json().is_array()) continue;
    for (auto& t : root[key].items()) config.added_tokens.emplace_back(-1, special_token(t));
  }
}

Side side_of(const JsonPart& root, const char* key) {
  std::string name = root.text_or(key, "right");
  if (name != "left" && name != "right") root[key].refuse("must be left or right, got '", name, "'");
  return name == "left" ? Side::Left : Side::Right;
}

TextCleaning cleaning_of(const JsonPart& root) {
  std::string name = root.text_or("text_cleaning", "transformers");
  if (name != "transformers" && name != "openai")
    root["text_cleaning"].refuse("must be transformers or openai, got '", name, "'");
  return name == "openai" ? TextCleaning::OpenAI : TextCleaning::Transformers;
}

Json described(const AddedToken& t) {
  return {{"content", t.content},
          {"lstrip", t.lstrip},
          {"normalized", t.normalized},
          {"rstrip", t.rstrip},
          {"single_word", t.single_word}};
}

}  // namespace

TokenizerConfig read_tokenizer_config(const TokenizerFiles& files) {
  TokenizerConfig config;
  if (files.has("tokenizer_config.json")) {
    Json document = parse_json(files.read("tokenizer_config.json"));
    JsonPart root(document, files.path("tokenizer_config.json"));
    read_special(root, config);
    if (root.has("model_max_length")) {
      JsonPart length = root["model_max_length"];
      double v = length.number();  // transformers writes 1e30 for "no limit"
      if (!(v >= 1)) length.refuse("must be at least 1");
      if (v < 1e9)
        config.model_max_length = length.json().is_number_float() ? int64_t(v) : length.integer(1, 1'000'000'000);
    }
    config.padding_side = side_of(root, "padding_side");
    config.truncation_side = side_of(root, "truncation_side");
    config.text_cleaning = cleaning_of(root);
    config.built_in_vocabulary = root.text_or("built_in_vocabulary", "");
    if (root.has("added_tokens_decoder")) {
      JsonPart added = root["added_tokens_decoder"];
      if (!added.json().is_object()) added.refuse("must be an object of ids and tokens");
      for (auto& [key, token] : added.json().items()) {
        int64_t id = -1;
        auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        if (error != std::errc() || end != key.data() + key.size() || id < 0) added.refuse("'", key, "' is no id");
        config.added_tokens.emplace_back(id, read_added_token({token, added.where() + "." + key}, false));
      }
    }
    read_extra(root, config);
  }
  if (files.has("added_tokens.json")) {  // transformers before version 4.34
    Json document = parse_json(files.read("added_tokens.json"));
    for (auto& [id, token] : read_vocabulary({document, files.path("added_tokens.json")}).sorted()) {
      auto same = std::find_if(config.added_tokens.begin(), config.added_tokens.end(),
                               [&, &t = token](auto& known) { return known.second.content == t; });
      if (same == config.added_tokens.end()) config.added_tokens.emplace_back(id, AddedToken{.content = token});
    }
  }
  if (files.has("special_tokens_map.json")) {
    Json document = parse_json(files.read("special_tokens_map.json"));
    JsonPart root(document, files.path("special_tokens_map.json"));
    read_special(root, config);
    read_extra(root, config);
  }
  return config;
}

std::string read_chat_template(const TokenizerFiles& files) {
  if (!files.has("tokenizer_config.json")) return {};
  const Json document = parse_json(files.read("tokenizer_config.json"));
  const auto said = document.find("chat_template");
  return said != document.end() && said->is_string() ? said->get<std::string>() : std::string();
}

std::string whole_text(const io::Bytes& file) {
  return file.size ? std::string(file.chars(), size_t(file.size)) : std::string();
}

FileTexts tokenizer_config_files(const TokenizerConfig& config, const std::string& tokenizer_class, const Json& more) {
  nlohmann::ordered_json document, map;
  auto& added = document["added_tokens_decoder"] = nlohmann::ordered_json::object();
  for (auto& [id, token] : config.added_tokens) {
    auto entry = described(token);
    entry["special"] = token.special;
    added[std::to_string(id)] = entry;
  }
  for (auto& [key, member] : kSpecial)
    if (config.*member) {
      map[key] = described(*(config.*member));
      document[key]["__type"] = "AddedToken";  // by which transformers tells a token from other dicts
      document[key].update(map[key]);
    }
  if (config.model_max_length < INT64_MAX) document["model_max_length"] = config.model_max_length;
  document["padding_side"] = config.padding_side == Side::Left ? "left" : "right";
  document["truncation_side"] = config.truncation_side == Side::Left ? "left" : "right";
  // transformers does not read it
  if (config.text_cleaning == TextCleaning::OpenAI) document["text_cleaning"] = "openai";
  for (auto& [key, value] : more.items()) document[key] = value;
  document["tokenizer_class"] = tokenizer_class;
  return {{"tokenizer_config.json", io::json_text(document, 2) + "\n"},
          {"special_tokens_map.json", io::json_text(map, 2) + "\n"}};
}

void Tokenizer::Parts::add_configured(const std::string& where) {
  for (auto& [id, token] : config.added_tokens)
    if (id >= 0 || !added.id(token.content)) add(token, id, where);
  // Of two roles of one token the one that is looked for in the text as it is decides, as in transformers: SD 1.5's
  // pad_token, a plain string, over its eos_token.
  std::vector<AddedToken> special;
  for (auto& [key, member] : kSpecial) {
    if (!(config.*member)) continue;
    auto& token = *(config.*member);
    auto known = added.id(token.content);
    if (known && added.find(*known)->special) continue;
    auto same = std::find_if(special.begin(), special.end(), [&](auto& s) { return s.content == token.content; });
    if (same == special.end()) special.push_back(token);
    else same->normalized &= token.normalized;
  }
  for (auto& token : special) add(token, -1, where);
  added.index(normalizer.get());
}

}  // namespace sf::tokenizers
