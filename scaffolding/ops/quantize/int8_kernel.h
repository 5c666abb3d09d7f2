// The contracts of int8 activations with CUDA; the CPU's loops are called as functions (int8_codes.h). All is dense.
#pragma once
#include "scaffolding/core/error.h"
#include "scaffolding/core/kernel.h"

namespace sf {

// codes[r, k] of x[r, k] (float32, bfloat16 or float16): a row's largest magnitude, most[r], is 127, the rest is
// rounded to the nearest, half to even, to the bits of int8_codes.h. measure: most is made, else given; one of all rows
// then. Where it is not finite, codes are 0: 0 times that is NaN, and so is what a product makes of it.
struct Int8Quantize {
  TensorView x, codes, most;
  bool measure = true;
};
extern KernelTable<Int8Quantize> int8_quantize;

// y[r, n] = float(sums[r, n]) * rows[r] * columns[n] + bias[n], rounded after each step. sums: int32; rows, columns and
// bias: float32, rows of one for all or [r], bias may be undefined; y: float32, bfloat16 or float16.
struct Int8Scale {
  TensorView sums, rows, columns, bias, y;
};
extern KernelTable<Int8Scale> int8_scale;

// rows[count, KH KW C] of what a convolution's kernel sees of codes[H, W, C] at the output's pixels p0 .. p0 + count, a
// row each; zeros outside.
struct Int8Unfold {
  TensorView codes, rows;
  int64_t kernel[2], stride[2], padding[2], dilation[2], out_width, p0;
};
extern KernelTable<Int8Unfold> int8_unfold;

template <class Args> void call_int8(const char* op, const KernelTable<Args>& table, const Args& args, Device device) {
  auto kernel = table.find(device, args);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", device);
  kernel(args);
}

}  // namespace sf
