#include "scaffolding/nn/stored_weight.h"

#include "scaffolding/core/op.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/nf4.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf::nn {

void check_features(const char* layer, int64_t in, int64_t out) {
  SF_CHECK(in >= 0 && out >= 0, layer, ": in_features and out_features must not be negative, got ", in, " and ", out);
}

void check_dense_weight(const char* layer, const Tensor& dense, int64_t out, int64_t in) {
  check_defined(layer, "weight", dense);
  SF_CHECK(dense.shape() == Shape({out, in}), layer, ": weight must have shape ", Shape{out, in}, ", got ",
           dense.shape());
}

void check_input_features(const char* layer, const Tensor& input, int64_t in) {
  SF_CHECK(input.ndim() > 0 && input.shape().back() == in, layer,
           ": the last size of the input must be in_features=", in, ", got ", input.shape());
}

BlockMagnitudes kept_magnitudes(const Tensor& magnitudes, bool compress) {
  if (!compress || magnitudes.numel() == 0) return {magnitudes, {}, {}};
  const Tensor middle = mean(magnitudes);
  auto [small, nested] = quantize_blockwise(magnitudes - middle);
  return {small, nested, middle};
}

}  // namespace sf::nn
