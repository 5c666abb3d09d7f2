// Pooling over the last 1, 2 or 3 dimensions of [N, C, ...] or [C, ...]. Lists of one number apply to every dimension;
// an empty stride means kernel_size. Memory formats are kept. Windows follow torch's rules for padding and ceil_mode.
#pragma once
#include "scaffolding/core/value.h"

namespace sf {

// count_include_pad: whether padding counts in the divisor. divisor_override: used instead of the number of elements.
Tensor avg_pool1d(const Tensor& input, const Shape& kernel_size, const Shape& stride = {}, const Shape& padding = {0},
                  bool ceil_mode = false, bool count_include_pad = true);
Tensor avg_pool2d(const Tensor& input, const Shape& kernel_size, const Shape& stride = {}, const Shape& padding = {0},
                  bool ceil_mode = false, bool count_include_pad = true, std::optional<int64_t> divisor_override = {});
Tensor avg_pool3d(const Tensor& input, const Shape& kernel_size, const Shape& stride = {}, const Shape& padding = {0},
                  bool ceil_mode = false, bool count_include_pad = true, std::optional<int64_t> divisor_override = {});

// The first of equal maxima gets the gradient; NaN is larger than any number.
Tensor max_pool1d(const Tensor& input, const Shape& kernel_size, const Shape& stride = {}, const Shape& padding = {0},
                  const Shape& dilation = {1}, bool ceil_mode = false);
Tensor max_pool2d(const Tensor& input, const Shape& kernel_size, const Shape& stride = {}, const Shape& padding = {0},
                  const Shape& dilation = {1}, bool ceil_mode = false);
Tensor max_pool3d(const Tensor& input, const Shape& kernel_size, const Shape& stride = {}, const Shape& padding = {0},
                  const Shape& dilation = {1}, bool ceil_mode = false);
// The maxima and their places: int64 positions in the flattened spatial dimensions of the input.
std::tuple<Tensor, Tensor> max_pool1d_with_indices(const Tensor& input, const Shape& kernel_size,
                                                   const Shape& stride = {}, const Shape& padding = {0},
                                                   const Shape& dilation = {1}, bool ceil_mode = false);
std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Tensor& input, const Shape& kernel_size,
                                                   const Shape& stride = {}, const Shape& padding = {0},
                                                   const Shape& dilation = {1}, bool ceil_mode = false);
std::tuple<Tensor, Tensor> max_pool3d_with_indices(const Tensor& input, const Shape& kernel_size,
                                                   const Shape& stride = {}, const Shape& padding = {0},
                                                   const Shape& dilation = {1}, bool ceil_mode = false);

// Windows that divide each dimension into output_size parts (-1: as many as there are entries).
Tensor adaptive_avg_pool1d(const Tensor& input, const Shape& output_size);
Tensor adaptive_avg_pool2d(const Tensor& input, const Shape& output_size);
Tensor adaptive_avg_pool3d(const Tensor& input, const Shape& output_size);
Tensor adaptive_max_pool1d(const Tensor& input, const Shape& output_size);
Tensor adaptive_max_pool2d(const Tensor& input, const Shape& output_size);
Tensor adaptive_max_pool3d(const Tensor& input, const Shape& output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& input, const Shape& output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& input, const Shape& output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& input, const Shape& output_size);

// The norm_type-norm of each window: (sum of input^norm_type)^(1 / norm_type).
Tensor lp_pool1d(const Tensor& input, double norm_type, const Shape& kernel_size, const Shape& stride = {},
                 bool ceil_mode = false);
Tensor lp_pool2d(const Tensor& input, double norm_type, const Shape& kernel_size, const Shape& stride = {},
                 bool ceil_mode = false);
Tensor lp_pool3d(const Tensor& input, double norm_type, const Shape& kernel_size, const Shape& stride = {},
                 bool ceil_mode = false);

// The inverse of max_pool_with_indices: zeros with input's values at `indices`. output_size, which may begin with N and
// C, chooses between the sizes that pool to input's.
Tensor max_unpool1d(const Tensor& input, const Tensor& indices, const Shape& kernel_size, const Shape& stride = {},
                    const Shape& padding = {0}, const Shape& output_size = {});
Tensor max_unpool2d(const Tensor& input, const Tensor& indices, const Shape& kernel_size, const Shape& stride = {},
                    const Shape& padding = {0}, const Shape& output_size = {});
Tensor max_unpool3d(const Tensor& input, const Tensor& indices, const Shape& kernel_size, const Shape& stride = {},
                    const Shape& padding = {0}, const Shape& output_size = {});

// Maxima of windows whose distances are drawn (Graham 2014): 1 or 2, say, for an output_ratio of 0.7. Either
// output_size or output_ratio is given. random_samples[N, C, dims] in [0, 1) place the windows; drawn when absent. The
// second result holds positions in the flattened spatial dimensions.
std::tuple<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& input, const Shape& kernel_size,
                                                              const Shape& output_size = {},
                                                              const std::optional<Floats>& output_ratio = {},
                                                              const Tensor& random_samples = {});
std::tuple<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& input, const Shape& kernel_size,
                                                              const Shape& output_size = {},
                                                              const std::optional<Floats>& output_ratio = {},
                                                              const Tensor& random_samples = {});

}  // namespace sf
