// Sliding windows. Lists of one number apply to both spatial dimensions.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// im2col: input[N, C, H, W] (or [C, H, W]) -> [N, C * kh * kw, L], one column for each of the L places of the kernel.
Tensor unfold(const Tensor& input, const Shape& kernel_size, const Shape& dilation = {1}, const Shape& padding = {0},
              const Shape& stride = {1});
// Its transpose: columns added up into [N, C, output_size].
Tensor fold(const Tensor& input, const Shape& output_size, const Shape& kernel_size, const Shape& dilation = {1},
            const Shape& padding = {0}, const Shape& stride = {1});
// Tensor.unfold: windows of `size` entries of a dimension, `step` apart,
// as a view with the window as the last dimension.
Tensor unfold_dim(const Tensor& input, int64_t dimension, int64_t size, int64_t step);

}  // namespace sf
