// Prompts to what a denoiser is conditioned on: tokens, the text encoder's layers, weights of words, and prompts longer
// than the encoder takes. Functions only.
#pragma once
#include <string>
#include <vector>

#include "scaffolding/diffusion/pipelines/components.h"
#include "scaffolding/tokenizers/tokenizer.h"

namespace sf::diffusion {

enum class PromptSyntax : uint8_t {
  Plain,  // as diffusers: brackets are text, and what does not fit into 77 tokens is cut off
  A1111,  // as the Stable Diffusion web UI: (word) weighs 1.1, (word:1.3) that much, [word] 1 / 1.1; "\(" is a bracket;
          // longer prompts take several chunks of 75 tokens, at most 64, and BREAK begins another
};
PromptSyntax prompt_syntax(std::string_view name);  // "plain", "a1111"; ValueError otherwise
const char* name_of(PromptSyntax syntax);

struct WeightedText {
  std::string text;
  double weight = 1;
  bool new_chunk = false;  // BREAK
};
// A prompt in the web UI's syntax. Neighbours of one weight are joined. ValueError for a weight that is no number and
// for more than 100 brackets within each other.
std::vector<WeightedText> parse_weights(std::string_view prompt);

// Which of the encoder's layers: the last with its norm, or an earlier one.
struct TextLayer {
  std::optional<int64_t> from_end;  // 1: before the last
  bool normalized = true;           // by the final layer norm
};

struct TextEmbeds {
  Tensor embeds;          // [B, tokens, features]
  Tensor pooled;          // [B, projection_dim], of the first chunk; undefined of an encoder without projection
  Tensor pooler_output;   // [B, features], of the first chunk; undefined of an encoder that has none
  Tensor attention_mask;  // int64 [B, tokens] of Plain: 0 where a token is padding
  std::vector<std::string> truncated;  // what was cut off, of the prompts that were too long
};

struct TextOptions {
  PromptSyntax syntax = PromptSyntax::Plain;
  TextLayer layer;
  int64_t length = 0;        // Plain: tokens to pad to and cut at; 0: what the encoder takes
  int64_t chunks = 1;        // A1111: at least so many
  bool masked = false;       // Plain: the encoder does not look at padding, whatever its config says
  int64_t told = INT64_MAX;  // of so many prompts, from the first, it is told what was cut off
};
// How many chunks the longest of the prompts takes.
int64_t prompt_chunks(const tokenizers::Tokenizer& tokenizer, TextEncoder& encoder,
                      const std::vector<std::string>& prompts);
TextEmbeds embed_prompts(const tokenizers::Tokenizer& tokenizer, TextEncoder& encoder,
                         const std::vector<std::string>& prompts, const TextOptions& options);

// embeds[B, ...] -> [B * n, ...]: each sample n times, one after the other.
Tensor repeated_samples(const Tensor& embeds, int64_t n);

}  // namespace sf::diffusion
