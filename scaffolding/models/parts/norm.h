// Normalisations of tokens in transformer blocks, under diffusers' names and keys.
#pragma once
#include "scaffolding/models/parts/embeddings.h"
#include "scaffolding/models/parts/projections.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/norm.h"

namespace sf::models {

// A layer norm over the channels; with num_embeddings diffusers' AdaLayerNorm, whose scale and shift come from the
// number of a timestep. One class because either stands under one name ("norm1") in a block: keys weight and bias,
// or emb and linear.
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
  // (*this)(x, timestep...) for projections that alone read it:
  // written in float8 where they take that and no gradient is recorded.
  template <class... T> ProjectionInput before(bool take_float8, const Tensor& x, const T&... timestep) const {
    return take_float8 && writes_float8() ? in_float8(x) : ProjectionInput((*this)(x, timestep...));
  }

 private:
  bool writes_float8() const;
  ProjectionInput in_float8(const Tensor& x) const;
};

// What adaptive norms tell a transformer block, each [B, C]: shift and scale of what is normalised and a gate of the
// result, for the attention (msa) and for the feed-forward layer (mlp).
struct BlockModulation {
  Tensor shift_msa, scale_msa, gate_msa, shift_mlp, scale_mlp, gate_mlp;
};
BlockModulation block_modulation(const Tensor& all);  // [B, 6 C]: adaLN-Zero's
// adaLN-single's (Chen et al. 2023, arXiv 2310.00426): one [B, 6 C] for all blocks, to which each adds a table [6,
// C] of its own.
BlockModulation block_modulation(const Tensor& all, const Tensor& scale_shift_table);
// The rows of table[n, C] + given[B, n, C] or [B, 1, C], each [B, C].
Tensors rows_with_table(const Tensor& table, const Tensor& given);

// adaLN-Zero (Peebles and Xie 2022, arXiv 2212.09748): what a transformer block takes from a timestep and a label.
struct AdaLayerNormZero : nn::Module {
  CombinedTimestepLabelEmbeddings emb;
  nn::Linear linear;
  SF_MODULE(AdaLayerNormZero, emb, linear)
  AdaLayerNormZero(int64_t embedding_dim, int64_t num_embeddings);
  // timestep[B], class_labels[B]
  BlockModulation forward(const Tensor& timestep, const Tensor& class_labels, DType dtype) const;
};

// norm(x) * (1 + scale) + shift, in one pass where nobody looks at the norm: x[B, N, C], scale and shift [B, C].
Tensor modulated(const nn::LayerNorm& norm, const Tensor& x, const Tensor& scale, const Tensor& shift);

// norm(x) * (1 + scale), likewise: x[B, N, C], scale [B, C].
Tensor scaled(const nn::RMSNorm& norm, const Tensor& x, const Tensor& scale);

// adaLN-Zero told what is embedded already: diffusers' AdaLayerNormZero(dim) with 6 parts, AdaLayerNormZeroSingle with
// 3, SD35AdaLayerNormZeroX with 9. x[B, N, dim], temb[B, dim] -> x normalised, shifted by the first part and scaled by
// the second, then the other parts [B, dim] in the order of the rows of `linear`: the gate; shift, scale and gate of
// what follows.
struct AdaLayerNormGated : nn::Module {
  int64_t parts;
  nn::Linear linear;  // of SiLU(temb)
  nn::LayerNorm norm;
  SF_MODULE(AdaLayerNormGated, linear, norm)
  AdaLayerNormGated(int64_t dim, int64_t parts);
  Tensors forward(const Tensor& x, const Tensor& temb) const;
};

// diffusers' AdaLayerNormContinuous: as AdaLayerNorm, with the scale first. x[B, N, dim], temb[B, embedding_dim].
struct AdaLayerNormContinuous : nn::Module {
  nn::Linear linear;  // of SiLU(temb): scale, then shift
  nn::LayerNorm norm;
  SF_MODULE(AdaLayerNormContinuous, linear, norm)
  AdaLayerNormContinuous(int64_t dim, int64_t embedding_dim, double eps, bool elementwise_affine = false);
  Tensor forward(const Tensor& x, const Tensor& temb) const;
};

// A layer norm of tokens whose shift and scale are made of what the network is told: diffusers' AdaLayerNorm with
// chunk_dim=1 (CogVideoX). x[B, N, dim], temb[B, embedding_dim] -> [B, N, dim].
struct AdaLayerNorm : nn::Module {
  nn::Linear linear;  // of SiLU(temb): shift, then scale
  nn::LayerNorm norm;
  SF_MODULE(AdaLayerNorm, linear, norm)
  AdaLayerNorm(int64_t embedding_dim, int64_t dim, double eps, bool elementwise_affine);
  Tensor forward(const Tensor& x, const Tensor& temb) const;
};

}  // namespace sf::models
