#include "scaffolding/diffusion/pipelines/textual_inversion.h"

#include <algorithm>
#include <filesystem>

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

struct Place {  // of a pipeline
  std::string name;
  Tokenizer* tokenizer;
  Model* text_encoder;
};

std::vector<Place> places_of(DiffusionPipeline& pipeline) {
  std::vector<Place> out;
  const ComponentSlots slots = pipeline.components();
  for (auto& slot : slots) {
    auto* encoder = slot.as<Ref<TextEncoder>>();
    if (!encoder || !*encoder || !(*encoder)->model()) continue;
    constexpr std::string_view kEncoder = "text_encoder";
    const std::string name = "tokenizer" + slot.name.substr(std::min(kEncoder.size(), slot.name.size()));
    for (auto& other : slots)
      if (auto* tokenizer = other.as<Ref<const Tokenizer>>(); tokenizer && *tokenizer && other.name == name)
        out.push_back({slot.name, const_cast<Tokenizer*>(tokenizer->get()), (*encoder)->model()});
  }
  return out;
}

void check_new(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    SF_CHECK(!tokens[i].empty(), "textual inversion: a token must not be empty");
    SF_CHECK(!tokenizer.token_to_id(tokens[i]) &&
                 std::find(tokens.begin(), tokens.begin() + int64_t(i), tokens[i]) == tokens.begin() + int64_t(i),
             "textual inversion: the tokenizer has a token '", tokens[i],
             "' already; choose another name, or remove it");
    (void)tokenizer.encode(tokens[i]);  // refuses what is no UTF-8, before anything changes
  }
}

int64_t features_of(Model& text_encoder) { return models::input_embeddings(text_encoder).weight.size(1); }

}  // namespace

std::vector<std::string> concept_tokens(const std::string& token, int64_t vectors) {
  std::vector<std::string> out{token};
  for (int64_t i = 1; i < vectors; ++i) out.push_back(token + "_" + std::to_string(i));
  return out;
}

void add_concept_tokens(Tokenizer& tokenizer, Model& text_encoder, const std::vector<std::string>& tokens,
                        const Tensor& vectors) {
  nn::Embedding& table = models::input_embeddings(text_encoder);
  SF_CHECK(vectors.dim() == 2 && vectors.size(0) == int64_t(tokens.size()),
           "textual inversion: needs a vector for each of ", tokens.size(), " tokens, got ", vectors.shape());
  SF_CHECK(vectors.size(1) == table.weight.size(1), "textual inversion: the vectors have ", vectors.size(1),
           " numbers, and the text encoder reads ", table.weight.size(1), ": they were made for another model");
  check_new(tokenizer, tokens);
  autograd::NoGrad no_grad;
  Tensor rows = vectors.to(table.weight.device());
  const DType wide = text_encoder.dtype(), narrow = table.weight.dtype();
  if (narrow != wide && abs(rows.to(narrow).to(kFloat64) - rows.to(kFloat64)).sum().item() > 0)
    table.weight = nn::parameter(table.weight.to(wide), table.weight.requires_grad());
  const int64_t first = tokenizer.next_id();
  models::resize_token_embeddings(text_encoder, std::max(table.weight.size(0), first + vectors.size(0)));
  table.weight.narrow(0, first, vectors.size(0)).copy_(rows.to(table.weight.dtype()));
  std::vector<AddedToken> added;
  for (auto& token : tokens) added.push_back({.content = token});
  tokenizer.add_tokens(added);
}

void remove_concept_tokens(Tokenizer& tokenizer, Model& text_encoder, const std::vector<std::string>& tokens) {
  const auto words = added_words(tokenizer);
  std::vector<std::string> gone;
  for (auto& token : tokens) {
    auto is_it = [&](auto& word) { return word.second.content == token; };
    SF_CHECK(std::any_of(words.begin(), words.end(), is_it), "textual inversion: '", token,
             "' is no token that was added");
    gone.push_back(token);
    for (int64_t i = 1; std::any_of(words.begin(), words.end(),
                                    [&](auto& word) { return word.second.content == token + "_" + std::to_string(i); });
         ++i)
      gone.push_back(token + "_" + std::to_string(i));
  }
  if (tokens.empty())
    for (auto& [id, word] : words) gone.push_back(word.content);
  if (gone.empty()) return;
  // All words leave, and those that stay come again behind each other.
  std::vector<AddedToken> kept;
  std::vector<int64_t> rows;
  std::vector<std::string> all;
  for (auto& [id, word] : words) {
    all.push_back(word.content);
    if (std::find(gone.begin(), gone.end(), word.content) != gone.end()) continue;
    kept.push_back(word);
    rows.push_back(id);
  }
  autograd::NoGrad no_grad;
  nn::Embedding& table = models::input_embeddings(text_encoder);
  const int64_t first = words.front().first, n = int64_t(rows.size());
  const Tensor moved =
      n ? index_select(table.weight, 0, tensor(rows, {n}, kInt64).to(table.weight.device())) : Tensor();
  tokenizer.remove_tokens(all);
  tokenizer.add_tokens(kept);
  if (n) table.weight.narrow(0, first, n).copy_(moved);
  if (table.weight.size(0) == words.back().first + 1) models::resize_token_embeddings(text_encoder, first + n);
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
  const std::vector<models::ConceptVectors> all = models::read_textual_inversion(*file, source.path);
  const std::string token = source.token.empty() ? std::filesystem::path(source.path).stem().string() : source.token;
  const std::vector<Place> places = places_of(pipeline);
  SF_CHECK(!places.empty(), "textual inversion: a ", pipeline.name(), " has no text encoder with a tokenizer");
  std::vector<std::pair<const Place*, Tensor>> fitting;
  for (auto& place : places)
    for (auto& one : all)
      if (one.vectors.size(1) == features_of(*place.text_encoder)) {
        check_new(*place.tokenizer, concept_tokens(token, one.vectors.size(0)));
        fitting.emplace_back(&place, one.vectors);
        break;
      }
  SF_CHECK(!fitting.empty(), source.path, ": its vectors have ", all[0].vectors.size(1), " numbers, and the ",
           places[0].name, " reads ", features_of(*places[0].text_encoder), ": it was made for another model");
  for (auto& [place, vectors] : fitting)
    add_concept_tokens(*place->tokenizer, *place->text_encoder, concept_tokens(token, vectors.size(0)), vectors);
  return token;
}

}  // namespace sf::diffusion
