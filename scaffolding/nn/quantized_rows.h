// Linear with a frozen weight as bitsandbytes stores it beside NF4 (quantized.h): FP4, and int8 by rows.
// The gradient goes to the input and the bias.
#pragma once
#include "scaffolding/nn/linear.h"
#include "scaffolding/nn/stored_weight.h"
#include "scaffolding/ops/quantize/int8_rows.h"

namespace sf::nn {

// The weight in FP4, blocks of 64, as bitsandbytes' Linear4bit with quant_type="fp4" stores it.
struct LinearFP4 : Module, StoredLinear {
  int64_t in_features, out_features;
  bool compress_statistics;  // the magnitudes of blocks are themselves in eight bits
  Buffer weight;             // uint8 [ceil(out_features * in_features / 2), 1]
  Buffer absmax;             // of each block: uint8 codes, or float32 without compress_statistics
  // float32: of each 256 codes of absmax; their mean, []. Absent without compress_statistics
  Buffer nested_absmax, offset;
  Tensor bias;  // [out_features], or absent
  SF_MODULE(LinearFP4, weight, absmax, nested_absmax, offset, bias)

  LinearFP4(int64_t in_features, int64_t out_features, bool bias = true, bool compress_statistics = true,
            const TensorOptions& options = {}, const Tensor& weight = {});  // weight: of a Linear; absent: zeros
  Tensor forward(const Tensor& input) const;
  void set_weight(const Tensor& dense);
  std::string weight_format() const override;
  Shape dense_shape() const override;
  Tensor dense_weight(DType dtype) const override;  // [out_features, in_features]
  Tensor forward_plus(const Tensor& input, const Tensor& residual) const override;
  std::string extra_repr() const override;
};

// The weight in int8 with a magnitude for each row, as bitsandbytes' Linear8bitLt stores it. dynamic: rows of the input
// become int8 too, whose products' sums are exact. unit: what a code of magnitude 1 is; 1 for scales of other programs.
struct LinearInt8 : Module, StoredLinear {
  int64_t in_features, out_features;
  bool dynamic;
  double unit;
  Buffer weight;  // int8 [out_features, in_features]
  Buffer SCB;     // float32 [out_features]; bitsandbytes' name
  Tensor bias;    // [out_features], or absent
  SF_MODULE(LinearInt8, weight, SCB, bias)

  LinearInt8(int64_t in_features, int64_t out_features, bool bias = true, bool dynamic = false, double unit = kInt8Unit,
             const TensorOptions& options = {}, const Tensor& weight = {});
  Tensor forward(const Tensor& input) const;
  std::string weight_format() const override;
  Shape dense_shape() const override;
  Tensor dense_weight(DType dtype) const override;  // [out_features, in_features]
  Tensor forward_plus(const Tensor& input, const Tensor& residual) const override;
  std::string extra_repr() const override;
};

}  // namespace sf::nn
