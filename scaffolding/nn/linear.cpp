#include "scaffolding/nn/linear.h"

#include <cmath>

#include "scaffolding/nn/format.h"
#include "scaffolding/nn/init.h"
#include "scaffolding/ops/bilinear/bilinear.h"
#include "scaffolding/ops/matmul/matmul.h"

namespace sf::nn {

Linear::Linear(int64_t in, int64_t out, bool with_bias, const TensorOptions& options)
    : in_features(in), out_features(out) {
  SF_CHECK(in >= 0 && out >= 0, "Linear: in_features and out_features must not be negative, got ", in, " and ", out);
  weight = parameter(empty({out, in}, options.dtype, options.device));
  if (with_bias) bias = parameter(empty({out}, options.dtype, options.device));
  reset_parameters();
}

void Linear::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias) return;
  double bound = in_features > 0 ? 1 / std::sqrt(double(in_features)) : 0;
  init::uniform_(bias, -bound, bound);
}

Tensor Linear::forward(const Tensor& input) const { return linear(input, weight, bias); }

std::string Linear::extra_repr() const {
  return "in_features=" + text(in_features) + ", out_features=" + text(out_features) + ", bias=" + text(bool(bias));
}

Bilinear::Bilinear(int64_t in1, int64_t in2, int64_t out, bool with_bias, const TensorOptions& options)
    : in1_features(in1), in2_features(in2), out_features(out) {
  SF_CHECK(in1 > 0, "Bilinear: in1_features must be > 0, but got ", in1);
  SF_CHECK(in2 >= 0 && out >= 0, "Bilinear: in2_features and out_features must not be negative, got ", in2, " and ",
           out);
  weight = parameter(empty({out, in1, in2}, options.dtype, options.device));
  if (with_bias) bias = parameter(empty({out}, options.dtype, options.device));
  reset_parameters();
}

void Bilinear::reset_parameters() {
  double bound = 1 / std::sqrt(double(in1_features));
  init::uniform_(weight, -bound, bound);
  if (bias) init::uniform_(bias, -bound, bound);
}

Tensor Bilinear::forward(const Tensor& input1, const Tensor& input2) const {
  return bilinear(input1, input2, weight, bias);
}

std::string Bilinear::extra_repr() const {
  return "in1_features=" + text(in1_features) + ", in2_features=" + text(in2_features) +
         ", out_features=" + text(out_features) + ", bias=" + text(bool(bias));
}

static LayerEntry& linear_fields(LayerEntry& e) {
  return e.forward<&Linear::forward>("input")
      .field<&Linear::in_features>("in_features")
      .field<&Linear::out_features>("out_features");
}
SF_LAYER(Linear, "in_features, out_features, bias=True, device=None, dtype=None",
         [](int64_t in_features, int64_t out_features, bool bias, std::optional<Device> device,
            std::optional<DType> dtype) {
           return std::make_unique<Linear>(in_features, out_features, bias, TensorOptions{device, dtype});
         })
    .doc("input[..., in_features] @ weight[out_features, in_features]^T + bias[out_features].")
    .with(linear_fields);
SF_LAYER(NonDynamicallyQuantizableLinear, "in_features, out_features, bias=True, device=None, dtype=None",
         [](int64_t in_features, int64_t out_features, bool bias, std::optional<Device> device,
            std::optional<DType> dtype) {
           return std::make_unique<NonDynamicallyQuantizableLinear>(in_features, out_features, bias,
                                                                    TensorOptions{device, dtype});
         })
    .doc("Linear, as MultiheadAttention's out_proj.")
    .with(linear_fields);
SF_LAYER(
    Bilinear, "in1_features, in2_features, out_features, bias=True, device=None, dtype=None",
    [](int64_t in1_features, int64_t in2_features, int64_t out_features, bool bias, std::optional<Device> device,
       std::optional<DType> dtype) {
      return std::make_unique<Bilinear>(in1_features, in2_features, out_features, bias, TensorOptions{device, dtype});
    })
    .doc("input1[..., i] weight[o, i, j] input2[..., j] + bias[o].")
    .forward<&Bilinear::forward>("input1, input2")
    .field<&Bilinear::in1_features>("in1_features")
    .field<&Bilinear::in2_features>("in2_features")
    .field<&Bilinear::out_features>("out_features");
SF_LAYER(Identity, "", [] { return std::make_unique<Identity>(); })
    .doc("The input itself; the constructor takes and forgets any arguments.")
    .ignores_arguments()
    .forward<&Identity::forward>("input");

}  // namespace sf::nn
