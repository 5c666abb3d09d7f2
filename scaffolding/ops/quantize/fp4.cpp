#include "scaffolding/ops/quantize/fp4.h"

#include "scaffolding/core/op.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/quantize/block_codes.h"
#include "scaffolding/ops/quantize/coded_kernel.h"

namespace sf {

std::tuple<Tensor, Tensor> quantize_fp4(const Tensor& input, int64_t blocksize) {
  return quantize_blocks("quantize_fp4", input, BlockFormat::Fp4, blocksize);
}
Tensor dequantize_fp4(const Tensor& input, const Tensor& absmax, const Shape& size, std::optional<DType> dtype,
                      int64_t blocksize, const Tensor& nested_absmax, const Tensor& offset) {
  return dequantize_blocks("dequantize_fp4", {input, absmax, nested_absmax, offset, BlockFormat::Fp4, blocksize}, size,
                           dtype.value_or(kFloat32));
}
Tensor linear_fp4(const Tensor& input, const Tensor& weight, const Tensor& absmax, const Tensor& nested_absmax,
                  const Tensor& offset, const Tensor& bias, int64_t out_features, int64_t blocksize) {
  return linear_of_blocks("linear_fp4", input, {weight, absmax, nested_absmax, offset, BlockFormat::Fp4, blocksize},
                          bias, out_features);
}

SF_OP(quantize_fp4, "input, blocksize=64")
    .doc("bitsandbytes' FP4 codes, two to a byte, and the largest magnitude of each block.")
    .no_gradient()
    .kernels(block_quantize);
SF_OP(dequantize_fp4, "input, absmax, size, dtype=None, blocksize=64, nested_absmax=None, offset=None")
    .doc("The tensor of that size behind FP4 codes; absmax itself may be quantised (nested_absmax, offset).")
    .no_gradient()
    .kernels(block_dequantize);
SF_OP(linear_fp4, "input, weight, absmax, nested_absmax, offset, bias, out_features, blocksize=64")
    .doc("linear with a frozen weight in FP4, which is decoded while it is multiplied.")
    .kernels(coded_product, block_dequantize, gemm);

}  // namespace sf
