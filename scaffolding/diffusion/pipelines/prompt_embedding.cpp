#include "scaffolding/diffusion/pipelines/prompt_embedding.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/textual_inversion.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

PromptSyntax prompt_syntax(std::string_view name) {
  if (name == "plain") return PromptSyntax::Plain;
  if (name == "a1111") return PromptSyntax::A1111;
  fail("prompt_syntax: must be 'plain' or 'a1111', got '", name, "'");
}

const char* name_of(PromptSyntax syntax) { return syntax == PromptSyntax::Plain ? "plain" : "a1111"; }

// ---- weights

namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_word(char c) { return std::isalnum(uint8_t(c)) || c == '_' || uint8_t(c) >= 0x80; }

// ":  1.3 )" at `at`: the number, and where the text goes on behind the bracket.
std::optional<double> weight_at(std::string_view s, size_t at, size_t& end) {
  if (s[at] != ':') return {};
  size_t from = at + 1;
  while (from < s.size() && is_space(s[from])) ++from;
  size_t digits = from + (from < s.size() && (s[from] == '+' || s[from] == '-')), to = digits;
  while (to < s.size() && (std::isdigit(uint8_t(s[to])) || s[to] == '.')) ++to;
  size_t close = to;
  while (close < s.size() && is_space(s[close])) ++close;
  if (to == digits || close >= s.size() || s[close] != ')') return {};
  double value = 0;
  size_t begin = s[from] == '+' ? digits : from;
  auto [stop, error] = std::from_chars(s.data() + begin, s.data() + to, value);
  SF_CHECK(error == std::errc() && stop == s.data() + to && std::isfinite(value),
           "prompt: a weight must be a number as in (word:1.2), got '", s.substr(from, to - from), "'");
  end = close + 1;
  return value;
}

// Text as it stands, with BREAK as a word of its own taken out.
void add_text(std::vector<WeightedText>& out, std::string_view text) {
  for (size_t at = 0;;) {
    size_t found = text.find("BREAK", at);
    while (found != text.npos &&
           ((found > 0 && is_word(text[found - 1])) || (found + 5 < text.size() && is_word(text[found + 5]))))
      found = text.find("BREAK", found + 1);
    std::string_view part = text.substr(at, found == text.npos ? found : found - at);
    if (found != text.npos)
      while (!part.empty() && is_space(part.back())) part.remove_suffix(1);
    if (!part.empty()) out.push_back({std::string(part)});
    if (found == text.npos) return;
    out.push_back({"", 1, true});
    for (at = found + 5; at < text.size() && is_space(text[at]);) ++at;
  }
}

}  // namespace

std::vector<WeightedText> parse_weights(std::string_view s) {
  constexpr size_t kDepth = 100;
  std::vector<WeightedText> out;
  std::vector<size_t> round, square;  // where in `out` the open brackets begin
  auto open = [&](std::vector<size_t>& brackets) {
    brackets.push_back(out.size());
    SF_CHECK(round.size() + square.size() <= kDepth, "prompt: more than ", kDepth,
             " brackets within each other; write \\( for a bracket that is text");
  };
  auto close = [&](std::vector<size_t>& brackets, double factor) {
    for (size_t i = brackets.back(); i < out.size(); ++i) out[i].weight *= factor;
    brackets.pop_back();
  };
  for (size_t at = 0; at < s.size();) {
    char c = s[at];
    size_t end = at + 1;
    if (c == '\\') {
      bool escapes = end < s.size() && std::string_view("()[]\\").find(s[end]) != std::string_view::npos;
      if (escapes) out.push_back({std::string(1, s[end++])});
    } else if (c == '(') {
      open(round);
    } else if (c == '[') {
      open(square);
    } else if (auto weight = round.empty() ? std::nullopt : weight_at(s, at, end)) {
      close(round, *weight);
    } else if (c == ')' && !round.empty()) {
      close(round, 1.1);
    } else if (c == ']' && !square.empty()) {
      close(square, 1 / 1.1);
    } else {
      while (end < s.size() && std::string_view("\\()[]:").find(s[end]) == std::string_view::npos) ++end;
      add_text(out, s.substr(at, end - at));
    }
    at = end;
  }
  while (!round.empty()) close(round, 1.1);
  while (!square.empty()) close(square, 1 / 1.1);
  std::vector<WeightedText> joined;
  for (auto& part : out) {
    if (!joined.empty() && !part.new_chunk && !joined.back().new_chunk && joined.back().weight == part.weight)
      joined.back().text += part.text;
    else joined.push_back(std::move(part));
  }
  return joined;
}

// ---- tokens

namespace {

int64_t token_limit(const tokenizers::Tokenizer& tokenizer, TextEncoder& encoder) {
  return std::min(tokenizer.config().model_max_length, encoder.config_int("max_position_embeddings", 77));
}

int64_t special_id(const tokenizers::Tokenizer& tokenizer, const std::optional<tokenizers::AddedToken>& token,
                   const char* name) {
  SF_CHECK(token, "prompt: the tokenizer has no ", name);
  return tokenizer.token_to_id(token->content).value();
}

// Every step's attention reads all of them: a prompt of 125 000 characters took 25 s a step.
constexpr size_t kMostChunks = 64;

// The tokens of a prompt between begin and end of text, and the weight of each.
struct Chunk {
  std::vector<int64_t> ids;
  std::vector<double> weights;
};

std::vector<Chunk> chunks_of(const tokenizers::Tokenizer& tokenizer, const std::string& prompt, size_t length) {
  std::vector<Chunk> chunks(1);
  const auto begin_another = [&] {
    SF_CHECK(chunks.size() < kMostChunks, "prompt: takes more than ", kMostChunks, " chunks of ", length,
             " tokens, got one of ", prompt.size(), " bytes; shorten it");
    chunks.emplace_back();
  };
  for (auto& part : parse_weights(prompt)) {
    if (part.new_chunk) begin_another();
    for (int64_t id : tokenizer.encode(with_all_vectors(tokenizer, part.text), {.add_special_tokens = false}).ids) {
      if (chunks.back().ids.size() == length) begin_another();
      chunks.back().ids.push_back(id);
      chunks.back().weights.push_back(part.weight);
    }
  }
  return chunks;
}

Tensor layer_of(TextEncoder& encoder, const TextEncoder::Output& out, const TextLayer& layer) {
  if (!layer.from_end) return out.last_hidden_state;
  auto n = int64_t(out.hidden_states.size());
  SF_CHECK(*layer.from_end >= 0 && *layer.from_end < n, "prompt: clip_skip asks for layer ", *layer.from_end,
           " from the end of a text encoder that has ", n, " outputs");
  const Tensor& h = out.hidden_states[size_t(n - 1 - *layer.from_end)];
  return layer.normalized ? encoder.final_layer_norm(h) : h;
}

TextEmbeds embed_plain(const tokenizers::Tokenizer& tokenizer, TextEncoder& encoder,
                       const std::vector<std::string>& asked, const TextOptions& o) {
  std::vector<std::string> prompts;
  for (auto& prompt : asked) prompts.push_back(with_all_vectors(tokenizer, prompt));
  int64_t length = o.length ? o.length : token_limit(tokenizer, encoder);
  TextEmbeds embeds;
  std::vector<int64_t> ids, mask;
  for (auto& e : tokenizer.encode_batch(prompts, tokenizer.fixed_length(length))) {
    ids.insert(ids.end(), e.ids.begin(), e.ids.end());
    mask.insert(mask.end(), e.attention_mask.begin(), e.attention_mask.end());
  }
  const auto all = tokenizer.encode_batch(prompts);
  for (int64_t i = 0; i < std::min(o.told, int64_t(all.size())); ++i)
    if (const auto& whole = all[size_t(i)]; int64_t(whole.ids.size()) > length)
      embeds.truncated.push_back(tokenizer.decode({whole.ids.begin() + length - 1, whole.ids.end() - 1}));
  Shape shape{int64_t(prompts.size()), length};
  Device device = encoder.device();
  embeds.attention_mask = tensor(mask, shape, kInt64).to(device);
  const bool masked = o.masked || encoder.config_bool("use_attention_mask", false);
  auto out = encoder.encode(tensor(ids, shape, kInt64).to(device), masked ? embeds.attention_mask : Tensor());
  embeds.embeds = layer_of(encoder, out, o.layer);
  embeds.pooled = out.text_embeds, embeds.pooler_output = out.pooler_output;
  return embeds;
}

TextEmbeds embed_weighted(const tokenizers::Tokenizer& tokenizer, TextEncoder& encoder,
                          const std::vector<std::string>& prompts, const TextOptions& o) {
  int64_t limit = token_limit(tokenizer, encoder), n = int64_t(prompts.size());
  int64_t bos = special_id(tokenizer, tokenizer.config().bos_token, "bos_token"),
          eos = special_id(tokenizer, tokenizer.config().eos_token, "eos_token"),
          pad = special_id(tokenizer, tokenizer.config().pad_token, "pad_token");
  std::vector<std::vector<Chunk>> all;
  size_t count = size_t(o.chunks);
  for (auto& prompt : prompts)
    count = std::max(count, all.emplace_back(chunks_of(tokenizer, prompt, size_t(limit - 2))).size());
  TextEmbeds embeds;
  Tensors parts;
  std::vector<double> all_weights(size_t(n) * count * size_t(limit), 1);  // [n, count * limit]
  for (size_t c = 0; c < count; ++c) {
    std::vector<int64_t> ids;
    for (size_t b = 0; b < size_t(n); ++b) {
      Chunk chunk = c < all[b].size() ? all[b][c] : Chunk();
      std::copy(chunk.weights.begin(), chunk.weights.end(),
                all_weights.begin() + int64_t((b * count + c) * size_t(limit) + 1));
      chunk.ids.insert(chunk.ids.begin(), bos);
      chunk.ids.push_back(eos);
      chunk.ids.resize(size_t(limit), pad);
      ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    }
    auto out = encoder.encode(tensor(ids, {n, limit}, kInt64).to(encoder.device()), {});
    parts.push_back(layer_of(encoder, out, o.layer));
    if (c == 0) embeds.pooled = out.text_embeds, embeds.pooler_output = out.pooler_output;
  }
  Tensor plain = cat(parts, 1);
  embeds.embeds = plain;
  if (std::all_of(all_weights.begin(), all_weights.end(), [](double w) { return w == 1; })) return embeds;
  // The mean of each sample stays: weights turn the embedding's direction, and not the strength of the whole prompt.
  Tensor x = plain.to(kFloat32), weights = tensor(all_weights, {n, plain.size(1), 1}, kFloat32).to(plain.device()),
         y = x * weights;
  Tensor before = x.mean({1, 2}, true), after = y.mean({1, 2}, true);
  embeds.embeds = where(eq(after, wrapped(0.0)), y, y * (before / after)).to(plain.dtype());
  return embeds;
}

}  // namespace

int64_t prompt_chunks(const tokenizers::Tokenizer& tokenizer, TextEncoder& encoder,
                      const std::vector<std::string>& prompts) {
  size_t n = 1, length = size_t(token_limit(tokenizer, encoder) - 2);
  for (auto& prompt : prompts) n = std::max(n, chunks_of(tokenizer, prompt, length).size());
  return int64_t(n);
}

TextEmbeds embed_prompts(const tokenizers::Tokenizer& tokenizer, TextEncoder& encoder,
                         const std::vector<std::string>& prompts, const TextOptions& options) {
  SF_CHECK(!prompts.empty(), "prompt: needs at least one prompt");
  return options.syntax == PromptSyntax::Plain ? embed_plain(tokenizer, encoder, prompts, options)
                                               : embed_weighted(tokenizer, encoder, prompts, options);
}

Tensor repeated_samples(const Tensor& embeds, int64_t n) {
  return n == 1 || !embeds ? embeds : repeat_interleave(embeds, scalar_tensor(n, kInt64), 0);
}

}  // namespace sf::diffusion
