#include "scaffolding/models/parts/norm.h"

#include "scaffolding/core/error.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

TransformerNorm::TransformerNorm(int64_t channels, double e, bool elementwise_affine, std::optional<int64_t> num_embeddings) : dim(channels), eps(e) {
  if (num_embeddings) {
    emb.emplace(*num_embeddings, dim);
    linear.emplace(dim, 2 * dim);
  } else if (elementwise_affine) {
    weight = nn::parameter(ones({dim}));
    bias = nn::parameter(zeros({dim}));
  }
}

Tensor TransformerNorm::forward(const Tensor& x, const Tensor& timestep) const {
  if (!emb) return layer_norm(x, {dim}, weight, bias, eps);
  SF_CHECK(timestep && timestep.ndim() <= 1, "AdaLayerNorm: needs a timestep of no or one dimension");
  const int64_t batch = x.size(0);
  Tensor numbers = timestep.ndim() ? timestep : timestep.unsqueeze(0);
  SF_CHECK(numbers.size(0) == 1 || numbers.size(0) == batch, "AdaLayerNorm: timestep must be one number or one for each of ", batch, " samples, got ",
           timestep.shape());
  Tensors parts = chunk((*linear)(silu((*emb)(numbers))), 2, -1);  // scale, shift
  return layer_norm_modulate(x, parts[0].expand({batch, dim}), parts[1].expand({batch, dim}), {}, {}, eps);
}

AdaLayerNormZero::AdaLayerNormZero(int64_t embedding_dim, int64_t num_embeddings)
    : emb(num_embeddings, embedding_dim), linear(embedding_dim, 6 * embedding_dim) {}

Tensors AdaLayerNormZero::forward(const Tensor& timestep, const Tensor& class_labels, DType dtype) const {
  return chunk(linear(silu(emb.forward(timestep, class_labels, dtype))), 6, 1);
}

}  // namespace sf::models
