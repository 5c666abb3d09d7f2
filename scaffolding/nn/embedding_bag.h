// Rows of a trained table in bags.
#pragma once
#include "scaffolding/nn/embedding.h"

namespace sf::nn {

struct EmbeddingBagOptions {
  std::optional<Number> max_norm;  // rows that are looked up are first scaled down to this norm, in place
  Number norm_type = 2.0;
  bool scale_grad_by_freq = false;
  std::string mode = "mean";  // "sum", "mean" or "max"
  bool include_last_offset = false;
  std::optional<int64_t> padding_idx;  // this row starts as zeros and does not count; negative: from the end
  Tensor weight;                       // given values instead of random ones
  TensorOptions tensor;
};

// input[B, L] of row numbers, or [P] with offsets[B] -> [B, embedding_dim]. Rows start normal(0, 1).
struct EmbeddingBag : Module {
  int64_t num_embeddings, embedding_dim;
  std::optional<Number> max_norm;
  Number norm_type;
  bool scale_grad_by_freq;
  std::string mode;
  bool include_last_offset;
  std::optional<int64_t> padding_idx;
  Tensor weight;  // [num_embeddings, embedding_dim]
  SF_MODULE(EmbeddingBag, weight)

  EmbeddingBag(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingBagOptions& options = {});
  Tensor forward(const Tensor& input, const Tensor& offsets = {}, const Tensor& per_sample_weights = {}) const;
  void reset_parameters();
  std::string extra_repr() const override;
};

}  // namespace sf::nn
