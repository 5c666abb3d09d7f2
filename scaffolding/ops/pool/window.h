// The windows of a pooling op: arguments checked and brought to one entry per dimension.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::pool {

// x: [N, C, ...] or [C, ...] with `dims` spatial dimensions, floating, none of them empty.
void check_input(const char* op, const Tensor& x, int64_t dims);
// A list of one number repeated, or of `dims`, each at least `least`.
Shape spread(const char* op, const char* name, const Shape& values, int64_t dims, int64_t least);

// As the caller gave them.
struct WindowArguments {
  const Shape &kernel_size, &stride, &padding, &dilation;
  bool ceil_mode;
};
struct Windows {
  Shape kernel, stride, padding, dilation;
  Shape out;  // output sizes
};
Windows windows(const char* op, const Tensor& x, int64_t dims, const WindowArguments& a);
// Sizes asked of adaptive pooling, -1 replaced by the input's.
Shape adaptive_sizes(const char* op, const Tensor& x, int64_t dims, const Shape& output_size);

}  // namespace sf::pool
