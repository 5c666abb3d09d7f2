#include "scaffolding/diffusion/pipelines/textual_inversion.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/error.h"
#include "scaffolding/models/text_encoders/input_embeddings.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

using models::Model;
using tokenizers::AddedToken;
using tokenizers::Tokenizer;

namespace {

// Those that were added and are not special, by id.
std::vector<std::pair<int64_t, AddedToken>> added_words(const Tokenizer& tokenizer) {
  auto all = tokenizer.added_tokens();
  std::erase_if(all, [](auto& t) { return t.second.special; });
  return all;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; }
bool begins_with(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.begin(), [](char a, char b) { return lower(a) == lower(b); });
}

// Text encoders with the tokenizers of their names.
std::vector<TextPart> text_parts(DiffusionPipeline& pipeline) {
  std::vector<TextPart> out;
  const ComponentSlots slots = pipeline.components();
  for (auto& slot : slots) {
    auto* encoder = slot.as<Ref<TextEncoder>>();
    if (!encoder || !*encoder || !(*encoder)->model()) continue;
    constexpr std::string_view kEncoder = "text_encoder";
    const std::string name = "tokenizer" + slot.name.substr(std::min(kEncoder.size(), slot.name.size()));
    for (auto& other : slots)
      if (auto* tokenizer = other.as<Ref<const Tokenizer>>(); tokenizer && *tokenizer && other.name == name)
        out.push_back({const_cast<Tokenizer*>(tokenizer->get()), (*encoder)->model()});
  }
  return out;
}

int64_t features_of(const TextPart& part) { return models::input_embeddings(*part.text_encoder).weight.size(1); }

std::vector<std::string> concept_tokens(const std::string& token, int64_t vectors) {
  std::vector<std::string> out{token};
  for (int64_t i = 1; i < vectors; ++i) out.push_back(token + "_" + std::to_string(i));
  return out;
}

// vectors: [n, features], of the table's size
void add_concept(const TextPart& part, const std::string& token, const Tensor& vectors) {
  const int64_t n = vectors.size(0), first = part.tokenizer->next_id();
  std::vector<AddedToken> added;
  for (auto& content : concept_tokens(token, n)) {
    SF_CHECK(!content.empty(), "textual inversion: a token must not be empty");
    SF_CHECK(!part.tokenizer->token_to_id(content), "textual inversion: the tokenizer has a token '", content,
             "' already; choose another name, or remove it");
    (void)part.tokenizer->encode(content);  // refuses what is no UTF-8, before anything changes
    added.push_back({.content = content});
  }
  const Tensor old = models::input_embeddings(*part.text_encoder).weight;
  SF_CHECK(first <= old.size(0), "textual inversion: the tokenizer has ", first, " tokens, and the text encoder reads ",
           old.size(0));
  const Tensor rows = vectors.to(old.device());
  const bool is_rounded = abs(rows.to(old.dtype()).to(kFloat64) - rows.to(kFloat64)).sum().item() > 0;
  const DType dtype = is_rounded ? part.text_encoder->dtype() : old.dtype();
  // A new table, also where the old one has room: it may lie in a file.
  Tensors table{old.narrow(0, 0, first).to(dtype), rows.to(dtype)};
  if (old.size(0) > first + n) table.push_back(old.narrow(0, first + n, old.size(0) - first - n).to(dtype));
  models::set_input_embeddings(*part.text_encoder, cat(table, 0));
  part.tokenizer->add_tokens(added);
}

}  // namespace

void add_concepts(const std::vector<TextPart>& parts, const std::vector<Concept>& concepts) {
  autograd::NoGrad no_grad;
  std::vector<std::pair<TextPart, std::string>> done;
  try {
    for (auto& [token, all] : concepts) {
      bool fits = false;
      for (auto& part : parts) {
        auto found = std::find_if(all.begin(), all.end(), [&](const Tensor& t) {
          return (t.dim() == 1 || t.dim() == 2) && t.size(-1) == features_of(part);
        });
        if (found == all.end()) continue;
        add_concept(part, token, found->dim() == 1 ? found->unsqueeze(0) : *found);
        done.emplace_back(part, token), fits = true;
      }
      SF_CHECK(fits, "textual inversion: the vectors of '", token, "' are ", all.at(0).shape(),
               ", and the text encoder reads [*, ", features_of(parts.at(0)), "]: they were made for another model");
    }
  } catch (...) {
    for (; !done.empty(); done.pop_back()) remove_concepts(done.back().first, {done.back().second});
    throw;
  }
}

void remove_concepts(const TextPart& part, const std::vector<std::string>& tokens) {
  const auto words = added_words(*part.tokenizer);
  auto is_there = [&](const std::string& content) {
    return std::any_of(words.begin(), words.end(), [&](auto& word) { return word.second.content == content; });
  };
  std::vector<std::string> gone;
  for (auto& token : tokens) {
    SF_CHECK(is_there(token), "textual inversion: '", token, "' is no token that was added");
    gone.push_back(token);
    for (int64_t i = 1; is_there(token + "_" + std::to_string(i)); ++i) gone.push_back(token + "_" + std::to_string(i));
  }
  // All words leave, and those that stay come again behind each other.
  std::vector<AddedToken> kept;
  std::vector<std::string> all;
  for (auto& [id, word] : words) {
    all.push_back(word.content);
    if (!tokens.empty() && std::find(gone.begin(), gone.end(), word.content) == gone.end()) kept.push_back(word);
  }
  if (kept.size() == words.size()) return;
  autograd::NoGrad no_grad;
  const Tensor old = models::input_embeddings(*part.text_encoder).weight;
  part.tokenizer->remove_tokens(all);
  part.tokenizer->add_tokens(kept);
  // Which row each id reads: its own, but for words that have moved.
  const bool shrinks = old.size(0) == words.back().first + 1;
  std::vector<int64_t> rows(size_t(shrinks ? part.tokenizer->next_id() : old.size(0)));
  std::iota(rows.begin(), rows.end(), 0);
  for (auto& [id, word] : words)
    if (auto now = part.tokenizer->token_to_id(word.content)) rows[size_t(*now)] = id;
  const Tensor taken = tensor(rows, {int64_t(rows.size())}, kInt64).to(old.device());
  models::set_input_embeddings(*part.text_encoder, index_select(old, 0, taken));
}

std::string with_all_vectors(const Tokenizer& tokenizer, const std::string& prompt) {
  const auto words = added_words(tokenizer);
  auto has = [&](const std::string& content) {
    return std::any_of(words.begin(), words.end(), [&](auto& word) { return word.second.content == content; });
  };
  std::vector<std::string> several;
  for (auto& [id, word] : words)
    if (has(word.content + "_1")) several.push_back(word.content);
  if (several.empty()) return prompt;
  const std::string_view text = prompt;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const std::string* longest = nullptr;
    for (auto& [id, word] : words)
      if (begins_with(text.substr(at), word.content) && (!longest || word.content.size() > longest->size()))
        longest = &word.content;
    if (!longest) {
      out += text[at++];
      continue;
    }
    out += text.substr(at, longest->size());
    at += longest->size();
    if (std::find(several.begin(), several.end(), *longest) == several.end()) continue;
    for (int64_t i = 1; has(*longest + "_" + std::to_string(i)); ++i) out += " " + *longest + "_" + std::to_string(i);
  }
  return out;
}

std::string load_textual_inversion(DiffusionPipeline& pipeline, const ConceptSource& source) {
  const auto file = io::open_checkpoint(source.path);
  Concept made{source.token.empty() ? std::filesystem::path(source.path).stem().string() : source.token, {}};
  for (auto& one : models::read_textual_inversion(*file, source.path)) made.vectors.push_back(one.vectors);
  const std::vector<TextPart> parts = text_parts(pipeline);
  SF_CHECK(!parts.empty(), "textual inversion: a ", pipeline.name(), " has no text encoder with a tokenizer");
  add_concepts(parts, {made});
  return made.token;
}

}  // namespace sf::diffusion
