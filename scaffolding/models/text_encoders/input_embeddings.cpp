#include "scaffolding/models/text_encoders/input_embeddings.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/text_encoders/clip.h"
#include "scaffolding/models/text_encoders/gemma3.h"
#include "scaffolding/models/text_encoders/qwen3.h"
#include "scaffolding/models/text_encoders/t5.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

namespace {

struct TokenTable {
  nn::Embedding& embedding;
  int64_t& vocab_size;
};

TokenTable token_table(Model& model) {
  if (auto* m = dynamic_cast<CLIPTextModel*>(&model))
    return {m->text_model.embeddings.token_embedding, m->options.vocab_size};
  if (auto* m = dynamic_cast<CLIPTextModelWithProjection*>(&model))
    return {m->text_model.embeddings.token_embedding, m->options.vocab_size};
  if (auto* m = dynamic_cast<T5EncoderModel*>(&model)) return {m->shared, m->options.vocab_size};
  if (auto* m = dynamic_cast<Qwen3Model*>(&model)) return {m->embed_tokens, m->options.vocab_size};
  if (auto* m = dynamic_cast<Gemma3TextModel*>(&model)) return {m->embed_tokens, m->options.vocab_size};
  fail<NotSupported>("input_embeddings: a ", model.type(), " has no table of tokens that can change");
}

}  // namespace

nn::Embedding& input_embeddings(Model& model) { return token_table(model).embedding; }

void set_input_embeddings(Model& model, const Tensor& table) {
  auto [embedding, vocab_size] = token_table(model);
  const Tensor& old = embedding.weight;
  SF_CHECK_AS(NotSupported, is_floating(old.dtype()), "set_input_embeddings: the table of tokens is ", old.dtype(),
              "; load the text encoder without quantisation");
  SF_CHECK(table.dim() == 2 && table.size(0) >= 1 && table.size(1) == old.size(1),
           "set_input_embeddings: needs a table [rows, ", old.size(1), "], got ", table.shape());
  embedding.weight = nn::parameter(table, old.requires_grad());
  embedding.num_embeddings = vocab_size = table.size(0);
}

void resize_token_embeddings(Model& model, int64_t rows) {
  SF_CHECK(rows >= 1, "resize_token_embeddings: needs one row at least, got ", rows);
  const Tensor old = input_embeddings(model).weight;
  const int64_t had = old.size(0);
  if (rows == had) return;
  autograd::NoGrad no_grad;
  if (rows < had) return set_input_embeddings(model, old.narrow(0, 0, rows).clone());
  const Tensor mean = old.to(kFloat32).mean({0}, true).to(old.dtype());
  set_input_embeddings(model, cat({old, mean.expand({rows - had, old.size(1)})}, 0));
}

}  // namespace sf::models
