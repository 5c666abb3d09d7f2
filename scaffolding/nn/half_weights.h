// Layers whose frozen weight stays in the 16 bits that a file has it in, float16 or bfloat16, while they compute in
// float32: results are those of the widened weight, in half the memory, and mapped pages of a file are read where they
// lie. Gradients go to inputs and biases.
#pragma once
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/stored_weight.h"

namespace sf::nn {

struct LinearHalf : Module, StoredLinear {
  int64_t in_features, out_features;
  Buffer weight;  // [out_features, in_features]
  Tensor bias;    // [out_features], or absent
  SF_MODULE(LinearHalf, weight, bias)

  LinearHalf(const Tensor& weight, const Tensor& bias);  // without copying them
  Tensor forward(const Tensor& input) const;
  std::string weight_format() const override;
  Shape dense_shape() const override { return {out_features, in_features}; }
  Tensor dense_weight(DType dtype) const override;
  Tensor forward_plus(const Tensor& input, const Tensor& residual) const override;
  std::string extra_repr() const override;
};

// A few output channels' kernels are widened at a time (conv_strips.h). A Conv2d to those who ask for its sizes or
// padding; the base's weight has shape and dtype and no memory.
struct Conv2dHalf : Conv2d, StoredWeight {
  Buffer narrow;  // [out_channels, in_channels / groups, *kernel_size]; "weight" in the state dict
  const char* type() const override { return "Conv2dHalf"; }
  void visit(Visitor& v) override;
  Value forward_tensors(const Values& args) override { return call_tensors(*this, args); }
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }

  Conv2dHalf(const Conv2d& like, const Tensor& weight);
  Tensor forward(const Tensor& input) const;
  std::string weight_format() const override;
  Shape dense_shape() const override { return weight.shape(); }
  Tensor dense_weight(DType dtype) const override;

 private:
  bool is_product_of_pixels(const Tensor& input) const;  // a kernel of one pixel, and pixels that are rows
};

// The table of tokens; rows become the dtype of `like`.
struct EmbeddingHalf : Module, StoredWeight {
  int64_t num_embeddings, embedding_dim;
  Buffer weight;                 // [num_embeddings, embedding_dim]
  Buffer like{Tensor(), false};  // [0] of the dtype that rows become: to() changes it
  SF_MODULE(EmbeddingHalf, weight, like)

  EmbeddingHalf(const Tensor& weight, DType dtype);
  Tensor forward(const Tensor& input) const;  // whole numbers [...] -> [..., embedding_dim]
  std::string weight_format() const override;
  Shape dense_shape() const override { return {num_embeddings, embedding_dim}; }
  Tensor dense_weight(DType dtype) const override;
  std::string extra_repr() const override;
};

// Puts a layer with this weight, float16 or bfloat16, in the place of a Linear, Conv2d or Embedding that is just one,
// and lets its own weight go. Null, and nothing changes, for another module, another shape, or where something stands
// there already. dtype: of the layer otherwise.
Module* put_half(Module& layer, const Tensor& weight, DType dtype);
bool is_half(const Module& layer);  // one of these

}  // namespace sf::nn
