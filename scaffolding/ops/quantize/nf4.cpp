#include "scaffolding/ops/quantize/nf4.h"

#include "scaffolding/core/op.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/quantize/block_codes.h"
#include "scaffolding/ops/quantize/coded_kernel.h"

namespace sf {

std::tuple<Tensor, Tensor> quantize_nf4(const Tensor& input, int64_t blocksize) {
  return quantize_blocks("quantize_nf4", input, BlockFormat::Nf4, blocksize);
}
std::tuple<Tensor, Tensor> quantize_blockwise(const Tensor& input, int64_t blocksize) {
  return quantize_blocks("quantize_blockwise", input, BlockFormat::Dynamic, blocksize);
}
Tensor dequantize_nf4(const Tensor& input, const Tensor& absmax, const Shape& size, std::optional<DType> dtype,
                      int64_t blocksize, const Tensor& nested_absmax, const Tensor& offset) {
  return dequantize_blocks("dequantize_nf4", {input, absmax, nested_absmax, offset, BlockFormat::Nf4, blocksize}, size,
                           dtype.value_or(kFloat32));
}
Tensor dequantize_blockwise(const Tensor& input, const Tensor& absmax, std::optional<DType> dtype, int64_t blocksize) {
  check_defined("dequantize_blockwise", "input", input);
  return dequantize_blocks("dequantize_blockwise", {input, absmax, {}, {}, BlockFormat::Dynamic, blocksize},
                           input.shape(), dtype.value_or(kFloat32));
}

Tensor linear_nf4(const Tensor& input, const Tensor& weight, const Tensor& absmax, const Tensor& nested_absmax,
                  const Tensor& offset, const Tensor& bias, int64_t out_features, int64_t blocksize) {
  return linear_of_blocks("linear_nf4", input, {weight, absmax, nested_absmax, offset, BlockFormat::Nf4, blocksize},
                          bias, out_features);
}

SF_OP(quantize_nf4, "input, blocksize=64")
    .doc("NormalFloat4 codes, two to a byte, and the largest magnitude of each block; bitsandbytes' layout.")
    .no_gradient()
    .kernels(block_quantize);
SF_OP(dequantize_nf4, "input, absmax, size, dtype=None, blocksize=64, nested_absmax=None, offset=None")
    .doc("The tensor of that size behind NormalFloat4 codes; absmax itself may be quantised (nested_absmax, offset).")
    .no_gradient()
    .kernels(block_dequantize);
SF_OP(quantize_blockwise, "input, blocksize=256")
    .doc("Codes of bitsandbytes' signed dynamic map of eight bits, and the largest magnitude of each block.")
    .no_gradient()
    .kernels(block_quantize);
SF_OP(dequantize_blockwise, "input, absmax, dtype=None, blocksize=256")
    .doc("The tensor behind the codes of quantize_blockwise.")
    .no_gradient()
    .kernels(block_dequantize);
SF_OP(linear_nf4, "input, weight, absmax, nested_absmax, offset, bias, out_features, blocksize=64")
    .doc(
        "linear with a frozen weight in NormalFloat4, which is decoded while it is multiplied, and dequantised in the "
        "backward pass.")
    .kernels(coded_product, block_dequantize, gemm);

}  // namespace sf
