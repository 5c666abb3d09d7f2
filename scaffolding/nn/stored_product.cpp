#include "scaffolding/nn/stored_product.h"

#include "scaffolding/core/error.h"
#include "scaffolding/nn/half_weights.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/nn/quantized_gguf.h"
#include "scaffolding/nn/quantized_rows.h"
#include "scaffolding/ops/quantize/block_codes.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/quantize/gguf.h"
#include "scaffolding/ops/quantize/half_rows.h"

namespace sf::nn {

Tensor stored_product(const Module& layer, const Tensor& input, const ProductEnd& end) {
  if (auto* l = dynamic_cast<const LinearGGUF*>(&layer))
    return linear_gguf(input, l->weight, l->bias, l->format, end.activation, end.residual, l->dynamic);
  if (auto* l = dynamic_cast<const LinearHalf*>(&layer)) return linear_half_with(input, l->weight, l->bias, end);
  if (auto* l = dynamic_cast<const LinearInt8*>(&layer))
    return linear_int8_with(input, l->weight, l->SCB, l->bias, l->unit, l->dynamic, end);
  if (auto* l = dynamic_cast<const LinearFP8*>(&layer))
    return linear_fp8_with(input, l->weight, l->scale, l->bias, l->dynamic, end);
  if (auto* l = dynamic_cast<const LinearNF4*>(&layer))
    return linear_of_blocks("linear_nf4", input, {l->weight, l->absmax, l->nested_absmax, l->offset, BlockFormat::Nf4},
                            l->bias, l->out_features, end);
  auto* l = dynamic_cast<const LinearFP4*>(&layer);
  SF_CHECK(l, "stored_product: a ", layer.type(), " is no linear layer whose weight is stored");
  return linear_of_blocks("linear_fp4", input, {l->weight, l->absmax, l->nested_absmax, l->offset, BlockFormat::Fp4},
                          l->bias, l->out_features, end);
}

}  // namespace sf::nn
