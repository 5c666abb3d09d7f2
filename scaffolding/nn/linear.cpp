#include "scaffolding/nn/linear.h"

#include <cmath>

#include "scaffolding/nn/init.h"
#include "scaffolding/ops/matmul/matmul.h"

namespace sf::nn {

Linear::Linear(int64_t in, int64_t out, bool with_bias, const TensorOptions& options) : in_features(in), out_features(out) {
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
  return "in_features=" + std::to_string(in_features) + ", out_features=" + std::to_string(out_features) + ", bias=" + (bias ? "True" : "False");
}

SF_LAYER(Linear, "in_features, out_features, bias=True, device=None, dtype=None",
         [](int64_t in_features, int64_t out_features, bool bias, std::optional<Device> device, std::optional<DType> dtype) {
           return std::make_unique<Linear>(in_features, out_features, bias, TensorOptions{device, dtype});
         })
    .doc("input[..., in_features] @ weight[out_features, in_features]^T + bias.")
    .forward<&Linear::forward>("input")
    .field<&Linear::in_features>("in_features")
    .field<&Linear::out_features>("out_features");

}  // namespace sf::nn
