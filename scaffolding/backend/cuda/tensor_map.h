// A matrix in device memory as Hopper's copy engine (TMA) reads it: boxes of it, put into shared memory as its tensor
// cores want them.
#pragma once
#include <cstdint>

#include "scaffolding/core/tensor_view.h"

namespace sf::cuda {

struct alignas(128) TensorMap {  // CUtensorMap: the driver alone knows what is in it
  unsigned char opaque[128];
};

inline constexpr int kBoxRowBytes = 128;  // in which 16-byte pieces are swizzled

// data[rows, cols] of 8 or 16 bits, rows `stride` elements apart, in boxes of box_rows (at most 256) x kBoxRowBytes.
// Elements outside of the matrix are zeros. data and the rows must be 16-byte aligned.
// RuntimeError where the driver is too old (CUDA 12.0) or refuses it.
TensorMap tensor_map(const char* op, const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride,
                     int box_rows);
// x[batch, heads, rows, width] of 16 bits, dense along `width`, in boxes of box_rows rows of one head. Where x has one
// of something its stride is free; other strides are multiples of 8 elements, above zero. Elements outside are zeros.
TensorMap heads_map(const char* op, const TensorView& x, int box_rows);

}  // namespace sf::cuda
