// Linear with a frozen weight in four or eight bits, which is dequantised for each call.
// The gradient goes to the input and the bias.
#pragma once
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/stored_weight.h"

namespace sf::nn {

// The weight in NormalFloat4, blocks of 64, as bitsandbytes' Linear4bit with quant_type="nf4" stores it.
struct LinearNF4 : Module, StoredLinear {
  int64_t in_features, out_features;
  bool
      compress_statistics;  // the magnitudes of blocks are themselves in eight bits: 4.127 bits a weight instead of 4.5
  Buffer weight;            // uint8 [ceil(out_features * in_features / 2), 1]
  Buffer absmax;            // of each block: uint8 codes, or float32 without compress_statistics
  // float32: of each 256 codes of absmax; their mean, []. Absent without compress_statistics
  Buffer nested_absmax, offset;
  Tensor bias;  // [out_features], or absent
  SF_MODULE(LinearNF4, weight, absmax, nested_absmax, offset, bias)

  LinearNF4(int64_t in_features, int64_t out_features, bool bias = true, bool compress_statistics = true,
            const TensorOptions& options = {}, const Tensor& weight = {});  // weight: of a Linear; absent: zeros
  Tensor forward(const Tensor& input) const;
  void set_weight(const Tensor& dense);  // quantises [out_features, in_features]
  std::string weight_format() const override;
  Shape dense_shape() const override;
  Tensor dense_weight(DType dtype) const override;  // [out_features, in_features]
  Tensor forward_plus(const Tensor& input, const Tensor& residual) const override;
  std::string extra_repr() const override;
};

// The weight in float8 (float8_e4m3fn or float8_e5m2) with a scale for each row, or one for all. dynamic: the input is
// quantised too, and GPUs that can multiply in float8 (scaled_mm).
struct LinearFP8 : Module, StoredLinear {
  int64_t in_features, out_features;
  bool dynamic;
  Buffer weight;  // float8 [out_features, in_features]
  Buffer scale;   // float32 [out_features, 1] or []
  Tensor bias;    // [out_features], or absent
  SF_MODULE(LinearFP8, weight, scale, bias)

  LinearFP8(int64_t in_features, int64_t out_features, bool bias = true, bool per_row = true, bool dynamic = false,
            DType weight_dtype = kFloat8E4M3, const TensorOptions& options = {}, const Tensor& weight = {});
  Tensor forward(const Tensor& input) const;
  void set_weight(const Tensor& dense);
  std::string weight_format() const override;
  Shape dense_shape() const override;
  Tensor dense_weight(DType dtype) const override;  // [out_features, in_features]
  Tensor forward_plus(const Tensor& input, const Tensor& residual) const override;
  std::string extra_repr() const override;
};

}  // namespace sf::nn
