// Layers whose frozen weight stays in the blocks of a GGUF format (ops/quantize/gguf.h): "Q8_0", "Q4_K" and their like.
// state_dict has the blocks as bytes under "weight". Gradients go to inputs and biases.
#pragma once
#include "scaffolding/nn/conv.h"
#include "scaffolding/nn/embedding.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/stored_weight.h"

namespace sf::nn {

// dynamic: each block of an input's row becomes int8 too, on the CPU (linear_gguf).
struct LinearGGUF : Module, StoredLinear {
  int64_t in_features, out_features;
  std::string format;
  bool dynamic;
  Buffer weight;  // uint8 [out_features, in_features / block * bytes]
  Tensor bias;    // [out_features], or absent
  SF_MODULE(LinearGGUF, weight, bias)

  // ValueError where in_features is no multiple of the format's block. weight: of a Linear; absent: zeros.
  LinearGGUF(int64_t in_features, int64_t out_features, bool bias = true, const std::string& format = "Q8_0",
             const TensorOptions& options = {}, const Tensor& weight = {}, bool dynamic = false);
  Tensor forward(const Tensor& input) const;
  std::string weight_format() const override { return format; }
  Shape dense_shape() const override { return {out_features, in_features}; }
  Tensor dense_weight(DType dtype) const override;  // [out_features, in_features]
  Tensor forward_plus(const Tensor& input, const Tensor& residual) const override;
  std::string extra_repr() const override;
};

// The kernel's numbers in one row of blocks, of which a few output channels' are decoded at a time (whole where a
// gradient is recorded, and where channels do not end with blocks). A Conv2d to those who ask for its
// sizes or padding; the base's weight has shape and dtype and no memory.
struct Conv2dGGUF : Conv2d, StoredWeight {
  std::string format;
  Buffer blocks;  // uint8 [1, all / block * bytes]; "weight" in the state dict
  const char* type() const override { return "Conv2dGGUF"; }
  void visit(Visitor& v) override;
  Value forward_tensors(const Values& args) override { return call_tensors(*this, args); }
  template <class... A> auto operator()(A&&... a) const { return call_module(*this, std::forward<A>(a)...); }

  Conv2dGGUF(const Conv2d& like, const std::string& format, const Tensor& weight = {});  // weight absent: zeros
  Tensor forward(const Tensor& input) const;
  std::string weight_format() const override { return format; }
  Shape dense_shape() const override { return weight.shape(); }
  Tensor dense_weight(DType dtype) const override;
  std::string extra_repr() const override;
};

struct EmbeddingGGUF : Module, StoredWeight {
  int64_t num_embeddings, embedding_dim;
  std::string format;
  Buffer weight;                 // uint8 [num_embeddings, embedding_dim / block * bytes]
  Buffer like{Tensor(), false};  // [0] of the dtype that rows become: to() changes it
  SF_MODULE(EmbeddingGGUF, weight, like)

  EmbeddingGGUF(int64_t num_embeddings, int64_t embedding_dim, const std::string& format = "Q8_0",
                const TensorOptions& options = {}, const Tensor& weight = {});
  Tensor forward(const Tensor& input) const;  // whole numbers [...] -> [..., embedding_dim]
  std::string weight_format() const override { return format; }
  Shape dense_shape() const override { return {num_embeddings, embedding_dim}; }
  Tensor dense_weight(DType dtype) const override;
  std::string extra_repr() const override;
};

}  // namespace sf::nn
