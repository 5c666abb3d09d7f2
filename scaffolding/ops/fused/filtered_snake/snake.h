// The activation of vocoders that follow BigVGAN (Lee et al. 2023, arXiv 2206.04658): a signal is made finer, goes
// through a periodic function and is made coarser again, so that the harmonics that the function adds do not alias.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input[N, C, L] -> [N, C, ratio L]: `ratio` times the transposed convolution of each channel with filter[K], stride
// `ratio`, of the input with its ends repeated, and of that the middle.
Tensor upsampled_by(const Tensor& input, const Tensor& filter, int64_t ratio);
// input[N, C, L] -> [N, C, ceil(L / ratio)]: the convolution of each channel with filter[K], stride `ratio`, of the
// input with its ends repeated.
Tensor downsampled_by(const Tensor& input, const Tensor& filter, int64_t ratio);
// input + amplitude[C] * sin(frequency[C] * input)^2 (Ziyin et al. 2020, arXiv 2006.08195), input[N, C, L].
Tensor snake(const Tensor& input, const Tensor& frequency, const Tensor& amplitude);

// downsampled_by(snake(upsampled_by(input, up, ratio), frequency, amplitude), down, ratio): in one pass where no
// gradient is wanted and a kernel does it, which leaves input and result as the only large tensors.
Tensor filtered_snake(const Tensor& input, const Tensor& frequency, const Tensor& amplitude, const Tensor& up,
                      const Tensor& down, int64_t ratio = 2);

}  // namespace sf
