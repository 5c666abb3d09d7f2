// Textual inversion in pipelines: a concept becomes tokens of the tokenizer and rows of the text encoder's table.
// Tokenizers and text encoders that pipelines share change for all of them; nothing may run meanwhile.
#pragma once
#include <string>
#include <vector>

#include "scaffolding/diffusion/pipelines/pipeline.h"
#include "scaffolding/models/adapters/textual_inversion.h"

namespace sf::diffusion {

struct TextPart {
  tokenizers::Tokenizer* tokenizer;
  models::Model* text_encoder;
};
struct Concept {
  std::string token;
  Tensors vectors;  // [n, features] or [features] each; a text encoder takes the first of its size
};
// A concept of n vectors takes n tokens, as diffusers calls them: "cat", "cat_1", ... "cat_{n-1}". ValueError, and
// nothing changes, for a token that a tokenizer has already and for a concept that fits no text encoder. A table whose
// dtype would round the vectors gets the encoder's.
void add_concepts(const std::vector<TextPart>& parts, const std::vector<Concept>& concepts);
// Takes tokens that were added, and their rows, out of both; later ones move up. A token takes the others of its
// concept along. None: all that were added and are not special. ValueError for one that was not added.
void remove_concepts(const TextPart& part, const std::vector<std::string>& tokens = {});
// diffusers' maybe_convert_prompt(): behind the token of a concept of several vectors its others, "cat cat_1 cat_2".
// In either case of letters, as the tokenizer finds it.
std::string with_all_vectors(const tokenizers::Tokenizer& tokenizer, const std::string& prompt);

struct ConceptSource {
  std::string path;
  std::string token = {};  // "": the file's name without the suffix
};
// Adds the concept to each text encoder that the file has vectors for, by their size, and returns its token.
// RuntimeError for a file that cannot be read; ValueError as above, for a file that is no textual inversion and for one
// that is for other text encoders; nothing changes then.
std::string load_textual_inversion(DiffusionPipeline& pipeline, const ConceptSource& source);

}  // namespace sf::diffusion
