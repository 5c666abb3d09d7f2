#include "scaffolding/nn/embedding.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/nn/format.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/embedding/embedding.h"

namespace sf::nn {

Embedding::Embedding(int64_t rows, int64_t dim, const EmbeddingOptions& o)
    : num_embeddings(rows),
      embedding_dim(dim),
      padding_idx(o.padding_idx),
      max_norm(o.max_norm),
      norm_type(o.norm_type),
      scale_grad_by_freq(o.scale_grad_by_freq) {
  SF_CHECK(rows >= 0 && dim >= 0, "Embedding: num_embeddings and embedding_dim must not be negative, got ", rows,
           " and ", dim);
  if (padding_idx) {
    SF_CHECK(*padding_idx >= -rows && *padding_idx < rows, "Embedding: Padding_idx must be within num_embeddings, got ",
             *padding_idx, " for ", rows);
    if (*padding_idx < 0) *padding_idx += rows;
  }
  if (o.weight) {
    check_shape("Embedding", "weight", o.weight, {rows, dim});
    weight = parameter(o.weight);
    return;
  }
  weight = parameter(empty({rows, dim}, o.tensor.dtype, o.tensor.device));
  reset_parameters();
}

void Embedding::reset_parameters() {
  init::normal_(weight);
  if (!padding_idx) return;
  autograd::NoGrad no_grad;
  weight.select(0, *padding_idx).zero_();
}

Tensor Embedding::forward(const Tensor& input) const {
  if (max_norm) embedding_renorm_(weight, input, *max_norm, norm_type);
  return embedding(input, weight, padding_idx, scale_grad_by_freq);
}

std::string Embedding::extra_repr() const {
  std::string s = text(num_embeddings) + ", " + text(embedding_dim);
  if (padding_idx) s += ", padding_idx=" + text(*padding_idx);
  if (max_norm) s += ", max_norm=" + text(*max_norm);
  if (norm_type != 2) s += ", norm_type=" + text(norm_type);
  if (scale_grad_by_freq) s += ", scale_grad_by_freq=True";
  return s;
}

SF_LAYER(Embedding,
         "num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, "
         "sparse=False, _weight=None, "
         "_freeze=False, device=None, dtype=None",
         [](int64_t num_embeddings, int64_t embedding_dim, std::optional<int64_t> padding_idx,
            std::optional<Number> max_norm, Number norm_type, bool scale_grad_by_freq, bool sparse, Tensor weight,
            bool freeze, std::optional<Device> device, std::optional<DType> dtype) {
           SF_CHECK_AS(NotSupported, !sparse, "Embedding: sparse gradients are not supported; leave sparse=False");
           auto e = std::make_unique<Embedding>(num_embeddings, embedding_dim,
                                                EmbeddingOptions{padding_idx, max_norm, norm_type, scale_grad_by_freq,
                                                                 weight, TensorOptions{device, dtype}});
           if (freeze) e->weight.requires_grad_(false);
           return e;
         })
    .doc("Rows of weight[num_embeddings, embedding_dim] by number: input[...] -> [..., embedding_dim].")
    .forward<&Embedding::forward>("input")
    .field<&Embedding::num_embeddings>("num_embeddings")
    .field<&Embedding::embedding_dim>("embedding_dim")
    .field<&Embedding::padding_idx>("padding_idx")
    .field<&Embedding::max_norm>("max_norm")
    .field<&Embedding::norm_type>("norm_type")
    .field<&Embedding::scale_grad_by_freq>("scale_grad_by_freq");

}  // namespace sf::nn
