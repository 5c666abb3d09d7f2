#include "scaffolding/ops/quantize/half_rows.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/quantize/coded_kernel.h"

namespace sf {

Tensor linear_half(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& residual) {
  return linear_half_with(input, weight, bias, {.residual = residual});
}

Tensor linear_half_with(const Tensor& input, const Tensor& weight, const Tensor& bias, const ProductEnd& end) {
  const char* op = "linear_half";
  check_defined(op, "weight", weight);
  check_floating(op, "weight", weight);
  check_coded_linear(op, input, weight, bias);
  autograd::refuse_gradient("linear_half: a weight of 16 bits", {weight});
  const bool narrow = weight.dtype() == kFloat16 || weight.dtype() == kBFloat16;
  return linear_of_codes(
      op, input, bias, weight.size(0), [=, dtype = input.dtype()] { return to_dtype(weight, dtype); },
      [&](CodedProduct& p) {
        if (!narrow || weight.dtype() == input.dtype()) return false;
        const Tensor rows = contiguous(weight);
        p.codes = rows, p.format = weight.dtype() == kFloat16 ? CodedFormat::Half : CodedFormat::BFloat;
        return coded_product_into(p);
      },
      end);
}

SF_OP(linear_half, "input, weight, bias=None, residual=None")
    .doc("linear with a frozen weight in float16 or bfloat16, which becomes input's dtype while it is multiplied.")
    .kernels(coded_product, gemm);

}  // namespace sf
