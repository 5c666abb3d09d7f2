// Reading tokenizer.json.
#include "scaffolding/tokenizers/tokenizer_parts.h"

namespace sf::tokenizers {

namespace {

constexpr int64_t kMaxLength = 1 << 24;  // tokens that a file may ask to pad or cut to

Side side_of(const JsonPart& part) {
  const std::string& name = part.text();
  if (name != "Left" && name != "Right") part.refuse("must be Left or Right, got '", name, "'");
  return name == "Left" ? Side::Left : Side::Right;
}

Truncation read_truncation(const JsonPart& part) {
  Truncation t{.max_length = part["max_length"].integer(0, kMaxLength)};
  if (part.has("direction")) t.side = side_of(part["direction"]);
  return t;
}

Padding read_padding(const JsonPart& part) {
  Padding p{.id = part["pad_id"].integer(0, INT32_MAX - 1)};
  if (part.has("direction")) p.side = side_of(part["direction"]);
  if (part.has("pad_to_multiple_of")) p.multiple_of = part["pad_to_multiple_of"].integer(0, kMaxLength);
  JsonPart strategy = part["strategy"];
  if (strategy.json().is_object()) p.length = strategy["Fixed"].integer(0, kMaxLength);
  else if (strategy.text() != "BatchLongest")
    strategy.refuse("must be BatchLongest or {\"Fixed\": length}, got '", strategy.text(), "'");
  return p;
}

}  // namespace

AddedToken read_added_token(const JsonPart& part, bool special) {
  AddedToken t{.content = part["content"].text()};
  t.single_word = part.flag_or("single_word", false);
  t.lstrip = part.flag_or("lstrip", false);
  t.rstrip = part.flag_or("rstrip", false);
  t.special = part.flag_or("special", special);
  t.normalized = part.flag_or("normalized", !t.special);
  return t;
}

// The special tokens around one text, whatever the processor: pairs of texts are not encoded here.
void Tokenizer::Parts::read_post_processor(const JsonPart& part) {
  const std::string& type = part["type"].text();
  auto named = [&](const char* key) {
    auto entry = part[key].items();
    if (entry.size() != 2) part.refuse(key, " must be [token, id]");
    return entry[1].integer(0, INT32_MAX - 1);
  };
  if (type == "Sequence") {
    for (auto& p : part["processors"].items()) read_post_processor(p);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    before.insert(before.begin(), named("cls"));
    after.push_back(named("sep"));
  } else if (type == "TemplateProcessing") {
    std::vector<int64_t> left, right;
    bool passed = false;
    for (auto& item : part["single"].items()) {
      if (item.has("Sequence")) {
        if (passed) item.refuse("the text stands twice in the template");
        passed = true;
        continue;
      }
      JsonPart name = item["SpecialToken"]["id"];
      JsonPart tokens = part["special_tokens"][name.text().c_str()]["ids"];
      for (auto& id : tokens.items()) (passed ? right : left).push_back(id.integer(0, INT32_MAX - 1));
    }
    if (!passed) part.refuse("the template has no place for the text");
    before.insert(before.begin(), left.begin(), left.end());
    after.insert(after.end(), right.begin(), right.end());
  } else if (type != "ByteLevel") {  // which only changes offsets
    part.refuse("the post-processor '", type, "' is not known");
  }
}

void Tokenizer::Parts::read_stages(const JsonPart& root) {
  if (root.has("normalizer")) normalizer = make_normalizer(root["normalizer"]);
  if (root.has("pre_tokenizer")) pre_tokenizer = make_pre_tokenizer(root["pre_tokenizer"]);
  if (root.has("post_processor")) read_post_processor(root["post_processor"]);
  if (root.has("decoder")) decoder = make_decoder(root["decoder"]);
  if (root.has("truncation")) defaults.truncation = read_truncation(root["truncation"]);
  if (root.has("padding")) defaults.padding = read_padding(root["padding"]);
}

std::unique_ptr<Tokenizer::Parts> read_tokenizer_json(const io::Bytes& file) {
  Json document = parse_json(file);
  JsonPart root(document, file.name);
  auto parts = std::make_unique<Tokenizer::Parts>();
  parts->model = make_model(root["model"]);
  parts->read_stages(root);
  if (root.has("added_tokens"))
    for (auto& t : root["added_tokens"].items())
      parts->add(read_added_token(t, false), t["id"].integer(0, INT32_MAX - 1), t.where());
  parts->added.index(parts->normalizer.get());
  return parts;
}

Tokenizer Tokenizer::from_json(const io::Bytes& file) { return Tokenizer(read_tokenizer_json(file)); }

Tokenizer Tokenizer::from_pretrained(const TokenizerFiles& files) {
  Tokenizer out = from_json(files.read("tokenizer.json"));
  out.parts_->config = read_tokenizer_config(files);
  out.parts_->add_configured(files.path("tokenizer_config.json"));
  return out;
}

}  // namespace sf::tokenizers
