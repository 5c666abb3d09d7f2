// Normalisations of tokens in transformer blocks, under diffusers' names and keys.
#pragma once
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

// A layer norm over the channels; with num_embeddings diffusers' AdaLayerNorm, whose scale and shift come from the number of a
// timestep. One class because either stands under one name ("norm1") in a block: keys weight and bias, or emb and linear.
struct TransformerNorm : nn::Module {
  int64_t dim;
  double eps;
  Tensor weight, bias;  // [dim], or absent
  std::optional<nn::Embedding> emb;
  std::optional<nn::Linear> linear;
  SF_MODULE(TransformerNorm, weight, bias, emb, linear)

  TransformerNorm(int64_t dim, double eps, bool elementwise_affine, std::optional<int64_t> num_embeddings = {});
  // x[B, N, dim]; timestep: whole numbers [] or [B], for num_embeddings only.
  Tensor forward(const Tensor& x, const Tensor& timestep = {}) const;
};

// adaLN-Zero (Peebles and Xie 2022, arXiv 2212.09748): what a transformer block takes from a timestep and a label.
struct AdaLayerNormZero : nn::Module {
  CombinedTimestepLabelEmbeddings emb;
  nn::Linear linear;
  SF_MODULE(AdaLayerNormZero, emb, linear)
  AdaLayerNormZero(int64_t embedding_dim, int64_t num_embeddings);
  // Of timestep[B] and class_labels[B], each [B, embedding_dim]: shift, scale and gate of the attention, then of the feed-forward layer.
  Tensors forward(const Tensor& timestep, const Tensor& class_labels, DType dtype) const;
};

}  // namespace sf::models
