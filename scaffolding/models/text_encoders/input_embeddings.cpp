#include "scaffolding/models/text_encoders/input_embeddings.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/text_encoders/clip.h"
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
  fail<NotSupported>("input_embeddings: a ", model.type(), " has no table of tokens that can change");
}

}  // namespace

nn::Embedding& input_embeddings(Model& model) { return token_table(model).embedding; }

void resize_token_embeddings(Model& model, int64_t rows) {
  auto [embedding, vocab_size] = token_table(model);
  SF_CHECK(rows >= 1, "resize_token_embeddings: needs one row at least, got ", rows);
  const Tensor old = embedding.weight;
  SF_CHECK_AS(NotSupported, is_floating(old.dtype()), "resize_token_embeddings: the table of tokens is ", old.dtype(),
              "; load the text encoder without quantisation");
  const int64_t had = old.size(0);
  if (rows == had) return;
  autograd::NoGrad no_grad;
  Tensor table = rows < had ? old.narrow(0, 0, rows).clone() : old;
  if (rows > had) {
    const Tensor mean = old.to(kFloat32).mean({0}, true).to(old.dtype());
    table = cat({old, mean.expand({rows - had, old.size(1)})}, 0);
  }
  embedding.weight = nn::parameter(table, old.requires_grad());
  embedding.num_embeddings = vocab_size = rows;
}

}  // namespace sf::models
