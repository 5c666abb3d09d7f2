// Weights in the blocks of GGUF files (gguf_formats.def): making them, reading them, and products that read them as
// they lie. Formats are told by name, in any case of letters: "Q8_0", "q4_K".
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/quantize/gguf_format.h"

namespace sf {

// uint8 [..., K / block * bytes] of a floating input[..., K]: each row in blocks, which K must be a multiple of. Q4_0,
// Q4_1, Q5_0, Q5_1 and Q8_0 are the gguf package's bytes. ValueError for numbers that are not finite, or too large for
// a scale in float16. On the CPU; a weight of another device comes over for it and goes back.
Tensor quantize_gguf(const Tensor& input, const std::string& format);
// The tensor of that size and dtype (float32) behind blocks that hold as many numbers; bit-equal to the gguf package's.
Tensor dequantize_gguf(const Tensor& input, const std::string& format, const Shape& size,
                       std::optional<DType> dtype = {});

// activation(linear(input, W, bias) + residual) with W [N, K] in rows of blocks: weight uint8 [N, K / block * bytes].
// Blocks are decoded while they are multiplied: no whole W is made, nor kept. The weight does not learn: the
// gradient goes to input, bias and residual, through the decoded W. activation: none, relu, gelu, gelu_tanh, silu or
// quick_gelu. dynamic, on the CPU: input becomes int8 too, each block of a row with a scale of its own; sums within a
// block are exact integers, and what is rounded is rounded alike by every instruction set. ValueError for input that is
// not finite then.
Tensor linear_gguf(const Tensor& input, const Tensor& weight, const Tensor& bias, const std::string& format,
                   const std::string& activation = "none", const Tensor& residual = {}, bool dynamic = false);

}  // namespace sf
