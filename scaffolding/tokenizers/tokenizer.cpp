#include "scaffolding/tokenizers/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "scaffolding/core/error.h"
#include "scaffolding/io/replacing_folder.h"
#include "scaffolding/tokenizers/tokenizer_parts.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

FileTexts Tokenizer::files() const {
  fail<NotSupported>("save_pretrained: a ", class_name(),
                     " cannot be written; copy the tokenizer.json that it was read from");
}

static constexpr const char* kJson = "tokenizer.json";

// The file without which none of the others is read as a tokenizer.
static std::string index_of(const FileTexts& texts) {
  for (const char* name : {kJson, "merges.txt", "spiece.model"})
    if (texts.contains(name)) return name;
  return texts.begin()->first;
}

void Tokenizer::save_pretrained(const std::string& folder) const {
  const FileTexts texts = files();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  SF_CHECK_AS(RuntimeError, !error, "save_pretrained: '", folder, "' cannot be made: ", error.message());
  const std::filesystem::path into(folder);
  io::ReplacingFolder whole(folder, index_of(texts));
  for (auto& [name, text] : texts) {
    io::ReplacingFile file((into / name).string());
    file.write(text.data(), text.size());
    file.commit();
  }
  // of an earlier save, and read before the others
  if (!texts.contains(kJson)) io::ReplacingFolder::remove((into / kJson).string());
  whole.commit();
}

std::optional<int64_t> Tokenizer::Parts::id(std::string_view token) const {
  auto own = added.id(token);
  return own ? own : model->vocabulary.id(token);
}

int64_t Tokenizer::Parts::next_id() const {
  int64_t next = model->vocabulary.next_id();
  return added.all().empty() ? next : std::max(next, added.all().rbegin()->first + 1);
}

int64_t Tokenizer::Parts::add(const AddedToken& token, int64_t wanted, const std::string& where) {
  SF_CHECK(!token.content.empty(), where, ": an added token must not be empty");
  require_utf8(token.content, where.c_str());
  auto known = id(token.content);
  if (wanted < 0) wanted = known.value_or(next_id());
  SF_CHECK(wanted < INT32_MAX, where, ": the id of '", token.content, "' must be below 2^31-1, got ", wanted);
  SF_CHECK(!known || *known == wanted, where, ": '", token.content, "' has the ids ", *known, " and ", wanted);
  const std::string* other = model->vocabulary.token(wanted);
  if (!other && added.find(wanted)) other = &added.find(wanted)->content;
  SF_CHECK(!other || *other == token.content, where, ": '", *other, "' and '", token.content, "' both have id ",
           wanted);
  added.add(token, wanted);
  return wanted;
}

void Tokenizer::Parts::pieces_of(std::string_view text, bool first, std::vector<int64_t>& ids) const {
  std::vector<Piece> pieces{{std::string(text), first}};
  if (pre_tokenizer) pieces = pre_tokenizer->apply(std::move(pieces));
  for (auto& p : pieces) model->tokenize(p.text, ids);
}

void Tokenizer::Parts::tokens_of(std::string_view text, std::vector<int64_t>& ids) const {
  for (auto& span : added.split(text, false)) {
    if (span.id >= 0) {
      ids.push_back(span.id);
      continue;
    }
    std::string part(text.substr(span.begin, span.end - span.begin));
    if (normalizer) part = normalizer->apply(std::move(part));
    for (auto& inner : added.split(part, true)) {
      if (inner.id >= 0) ids.push_back(inner.id);
      else
        pieces_of(std::string_view(part).substr(inner.begin, inner.end - inner.begin),
                  span.begin == 0 && inner.begin == 0, ids);
    }
  }
}

namespace {

void pad(Encoding& e, int64_t longest, const Padding& p) {
  int64_t length = p.length ? p.length : longest;
  if (p.multiple_of > 0 && length % p.multiple_of) length += p.multiple_of - length % p.multiple_of;
  auto missing = length - int64_t(e.ids.size());
  if (missing <= 0) return;
  e.ids.insert(p.side == Side::Right ? e.ids.end() : e.ids.begin(), size_t(missing), p.id);
  e.attention_mask.insert(p.side == Side::Right ? e.attention_mask.end() : e.attention_mask.begin(), size_t(missing),
                          0);
}

}  // namespace

std::vector<Encoding> Tokenizer::encode_batch(const std::vector<std::string>& texts,
                                              const EncodeOptions& options) const {
  size_t special = options.add_special_tokens ? parts_->before.size() + parts_->after.size() : 0;
  if (options.truncation) {
    SF_CHECK(options.truncation->max_length >= int64_t(special), "encode: max_length must have room for ", special,
             " special tokens, got ", options.truncation->max_length);
  }
  if (options.padding) {
    auto& p = *options.padding;
    constexpr int64_t kLongest = 1 << 24;  // tokens
    SF_CHECK(p.length >= 0 && p.length <= kLongest, "encode: the padded length must be between 0 and ", kLongest,
             ", got ", p.length);
    SF_CHECK(p.multiple_of >= 0 && p.multiple_of <= kLongest, "encode: pad_to_multiple_of must be between 0 and ",
             kLongest, ", got ", p.multiple_of);
  }
  std::vector<Encoding> out(texts.size());
  int64_t longest = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    require_utf8(texts[i], "encode");
    SF_CHECK(texts[i].size() <= kMaxText, "encode: a text may have ", kMaxText, " bytes, got ", texts[i].size());
    std::vector<int64_t> ids;
    parts_->tokens_of(texts[i], ids);
    if (options.truncation) {
      size_t room = size_t(options.truncation->max_length) - special;
      if (ids.size() > room) {
        if (options.truncation->side == Side::Right) ids.resize(room);
        else ids.erase(ids.begin(), ids.end() - ptrdiff_t(room));
      }
    }
    if (options.add_special_tokens) {
      ids.insert(ids.begin(), parts_->before.begin(), parts_->before.end());
      ids.insert(ids.end(), parts_->after.begin(), parts_->after.end());
    }
    out[i].attention_mask.assign(ids.size(), 1);
    out[i].ids = std::move(ids);
    longest = std::max(longest, int64_t(out[i].ids.size()));
  }
  if (options.padding)
    for (auto& e : out) pad(e, longest, *options.padding);
  return out;
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return std::move(encode_batch({std::string(text)}, options)[0]);
}

const EncodeOptions& Tokenizer::defaults() const { return parts_->defaults; }

const TokenizerConfig& Tokenizer::config() const { return parts_->config; }

EncodeOptions Tokenizer::fixed_length(int64_t length) const {
  auto& c = parts_->config;
  SF_CHECK(length > 0 || c.model_max_length < INT64_MAX,
           "encode: padding to max_length needs a max_length: this tokenizer has no model_max_length");
  SF_CHECK(c.pad_token, "encode: padding needs a pad token, and this tokenizer has none");
  if (length <= 0) length = c.model_max_length;
  return {.truncation = Truncation{length, c.truncation_side},
          .padding = Padding{.length = length, .side = c.padding_side, .id = *parts_->id(c.pad_token->content)}};
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (int64_t id : ids) {
    const AddedToken* own = parts_->added.find(id);
    if (own && own->special && skip_special_tokens) continue;
    if (auto token = id_to_token(id)) tokens.push_back(std::move(*token));
  }
  std::string out;
  if (!parts_->decoder) {
    for (size_t i = 0; i < tokens.size(); ++i) out += (i ? " " : "") + tokens[i];
  } else {
    for (auto& t : parts_->decoder->apply(std::move(tokens))) out += t;
  }
  return out;
}

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const { return parts_->id(token); }

std::optional<std::string> Tokenizer::id_to_token(int64_t id) const {
  if (const AddedToken* own = parts_->added.find(id)) return own->content;
  const std::string* token = parts_->model->vocabulary.token(id);
  return token ? std::optional(*token) : std::nullopt;
}

std::vector<std::pair<int64_t, std::string>> Tokenizer::vocabulary(bool with_added) const {
  auto out = parts_->model->vocabulary.sorted();
  if (!with_added) return out;
  for (auto& [id, token] : parts_->added.all())
    if (!parts_->model->vocabulary.token(id)) out.emplace_back(id, token.content);
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::pair<int64_t, AddedToken>> Tokenizer::added_tokens() const {
  return {parts_->added.all().begin(), parts_->added.all().end()};
}

int64_t Tokenizer::add_tokens(const std::vector<AddedToken>& tokens) {
  for (auto& t : tokens) {
    SF_CHECK(!t.content.empty(), "add_tokens: a token must not be empty");
    require_utf8(t.content, "add_tokens");
  }
  int64_t added = 0;
  for (auto& t : tokens) {
    added += !parts_->id(t.content);
    parts_->add(t, -1, "add_tokens");
  }
  parts_->added.index(parts_->normalizer.get());
  return added;
}

void Tokenizer::remove_tokens(const std::vector<std::string>& tokens) {
  for (auto& t : tokens)
    SF_CHECK(parts_->added.id(t) && !parts_->model->vocabulary.token(*parts_->added.id(t)), "remove_tokens: '", t,
             "' is no token that was added");
  for (auto& t : tokens) parts_->added.remove(t);
  parts_->added.index(parts_->normalizer.get());
}

int64_t Tokenizer::next_id() const { return parts_->next_id(); }

size_t Tokenizer::size() const {
  size_t n = parts_->model->vocabulary.size();
  for (auto& [id, token] : parts_->added.all()) n += !parts_->model->vocabulary.token(id);
  return n;
}

}  // namespace sf::tokenizers
