// Rows of a trained table by number.
#pragma once
#include "scaffolding/nn/layer.h"

namespace sf::nn {

struct EmbeddingOptions {
  std::optional<int64_t> padding_idx;  // this row starts as zeros and gets no gradient; negative: from the end
  std::optional<Number> max_norm;      // rows that are looked up are first scaled down to this norm, in place
  Number norm_type = 2.0;
  bool scale_grad_by_freq = false;  // gradients of equal numbers are averaged instead of summed
  Tensor weight;                    // given values instead of random ones
  TensorOptions tensor;
};

// input[...] of row numbers -> [..., embedding_dim]. Rows start normal(0, 1).
struct Embedding : Module {
  int64_t num_embeddings, embedding_dim;
  std::optional<int64_t> padding_idx;
  std::optional<Number> max_norm;
  Number norm_type;
  bool scale_grad_by_freq;
  Tensor weight;  // [num_embeddings, embedding_dim]
  SF_MODULE(Embedding, weight)

  Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& input) const;
  void reset_parameters();
  std::string extra_repr() const override;
};

}  // namespace sf::nn
