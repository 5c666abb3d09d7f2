#include "scaffolding/nn/embedding_bag.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/nn/format.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/embedding/embedding.h"
#include "scaffolding/ops/embedding_bag/embedding_bag.h"

namespace sf::nn {

EmbeddingBag::EmbeddingBag(int64_t rows, int64_t dim, const EmbeddingBagOptions& o)
    : num_embeddings(rows),
      embedding_dim(dim),
      max_norm(o.max_norm),
      norm_type(o.norm_type),
      scale_grad_by_freq(o.scale_grad_by_freq),
      mode(o.mode),
      include_last_offset(o.include_last_offset),
      padding_idx(o.padding_idx) {
  SF_CHECK(rows >= 0 && dim >= 0, "EmbeddingBag: num_embeddings and embedding_dim must not be negative, got ", rows,
           " and ", dim);
  SF_CHECK(mode == "sum" || mode == "mean" || mode == "max", "EmbeddingBag: mode must be 'sum', 'mean' or 'max', got '",
           mode, "'");
  if (padding_idx) {
    SF_CHECK(*padding_idx >= -rows && *padding_idx < rows,
             "EmbeddingBag: padding_idx must be within num_embeddings, got ", *padding_idx, " for ", rows);
    if (*padding_idx < 0) *padding_idx += rows;
  }
  if (o.weight) {
    check_shape("EmbeddingBag", "weight", o.weight, {rows, dim});
    weight = parameter(o.weight);
    return;
  }
  weight = parameter(empty({rows, dim}, o.tensor.dtype, o.tensor.device));
  reset_parameters();
}

void EmbeddingBag::reset_parameters() {
  init::normal_(weight);
  if (!padding_idx) return;
  autograd::NoGrad no_grad;
  weight.select(0, *padding_idx).zero_();
}

Tensor EmbeddingBag::forward(const Tensor& input, const Tensor& offsets, const Tensor& per_sample_weights) const {
  if (max_norm) embedding_renorm_(weight, input, *max_norm, norm_type);
  return embedding_bag(input, weight, offsets, scale_grad_by_freq, mode, per_sample_weights, include_last_offset,
                       padding_idx);
}

std::string EmbeddingBag::extra_repr() const {
  std::string s = text(num_embeddings) + ", " + text(embedding_dim);
  if (max_norm) s += ", max_norm=" + text(*max_norm);
  if (norm_type != 2) s += ", norm_type=" + text(norm_type);
  if (scale_grad_by_freq) s += ", scale_grad_by_freq=True";
  s += ", mode='" + mode + "'";
  if (padding_idx) s += ", padding_idx=" + text(*padding_idx);
  return s;
}

SF_LAYER(EmbeddingBag,
         "num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode='mean', "
         "sparse=False, _weight=None, include_last_offset=False, padding_idx=None, device=None, dtype=None",
         [](int64_t num_embeddings, int64_t embedding_dim, std::optional<Number> max_norm, Number norm_type,
            bool scale_grad_by_freq, std::string mode, bool sparse, Tensor weight, bool include_last_offset,
            std::optional<int64_t> padding_idx, std::optional<Device> device, std::optional<DType> dtype) {
           SF_CHECK_AS(NotSupported, !sparse, "EmbeddingBag: sparse gradients are not supported; leave sparse=False");
           return std::make_unique<EmbeddingBag>(
               num_embeddings, embedding_dim,
               EmbeddingBagOptions{max_norm, norm_type, scale_grad_by_freq, mode, include_last_offset, padding_idx,
                                   weight, TensorOptions{device, dtype}});
         })
    .doc(
        "Sums, means or maxima of rows of weight by number: input[B, L], or [P] with offsets[B] -> [B, embedding_dim].")
    .forward<&EmbeddingBag::forward>("input, offsets=None, per_sample_weights=None")
    .field<&EmbeddingBag::num_embeddings>("num_embeddings")
    .field<&EmbeddingBag::embedding_dim>("embedding_dim")
    .field<&EmbeddingBag::max_norm>("max_norm")
    .field<&EmbeddingBag::norm_type>("norm_type")
    .field<&EmbeddingBag::scale_grad_by_freq>("scale_grad_by_freq")
    .field<&EmbeddingBag::mode>("mode")
    .field<&EmbeddingBag::include_last_offset>("include_last_offset")
    .field<&EmbeddingBag::padding_idx>("padding_idx");

}  // namespace sf::nn
