// The contracts of int8 activations with backends. All is dense.
#pragma once
#include "scaffolding/core/error.h"
#include "scaffolding/core/kernel.h"
#include "scaffolding/core/tensor.h"

namespace sf {

// Sums of so many products of two codes fit an int32.
constexpr int64_t kMostSummed = (int64_t(1) << 31) / (127 * 127) - 1;

// What these kernels read and write beside int8; other floating types become float32 before, and after.
inline bool is_beside_int8(DType t) { return t == kFloat32 || t == kBFloat16 || t == kFloat16; }

// codes[r, k] of x[r, k] (float32, bfloat16 or float16): a row's largest magnitude, most[r], is 127; the others are
// multiplied by 127 / most[r], in float32, and rounded to the nearest whole number, half to even. Where that quotient
// is infinite all are 0: such numbers are 0 in every dtype that matters. measure: most is made, else given; one of all
// rows then. Where a number is not finite, most is not either, and codes are 0: 0 times that is NaN, and so is what a
// product makes of it.
struct Int8Quantize {
  TensorView x, codes, most;
  bool measure = true;
};
extern KernelTable<Int8Quantize> int8_quantize;

// The same of silu(group_norm(x)) of x[N, pixels, C], whose statistics are mean[N, groups] and rstd; weight and bias
// [C]. All float32 but x and codes[N, pixels, C]; most[N]. On the CPU.
struct Int8NormQuantize {
  TensorView x, mean, rstd, weight, bias, codes, most;
  int64_t groups = 1;
};
extern KernelTable<Int8NormQuantize> int8_norm_quantize;

// y[m, n] = float(sum over k of a[m, k] * weight[n, k]) * rows[m] * columns[n] + bias[n], rounded after each step. Sums
// are of 32 bits. rows, columns and bias: float32; bias may be undefined; y: float32, bfloat16 or float16. On the CPU.
struct Int8Linear {
  TensorView a, weight, rows, columns, bias, y;
};
extern KernelTable<Int8Linear> int8_linear;

// The same of what a convolution's kernel sees of x[N, H, W, C] at each of the output's pixels, y[N out[0] out[1], O],
// plus residual of y's dtype and sizes, or undefined; weight[O, KH, KW, C], rows[N], bias[O] or [N, O].
struct Int8Conv {
  TensorView x, weight, rows, columns, bias, residual, y;
  int64_t stride[2], padding[2], dilation[2], out[2];
};
extern KernelTable<Int8Conv> int8_conv;

// For CUDA, where sums are int_mm's: y[r, n] = float(sums[r, n]) * rows[r] * columns[n] + bias[n], rounded after each
// step. sums: int32; rows, columns and bias: float32, rows of one for all or [r], bias may be undefined; y: float32,
// bfloat16 or float16.
struct Int8Scale {
  TensorView sums, rows, columns, bias, y;
};
extern KernelTable<Int8Scale> int8_scale;

// For CUDA: rows[count, KH KW C] of what a convolution's kernel sees of codes[H, W, C] at the output's pixels
// p0 .. p0 + count, a row each; zeros outside.
struct Int8Unfold {
  TensorView codes, rows;
  int64_t kernel[2], stride[2], padding[2], dilation[2], out_width, p0;
};
extern KernelTable<Int8Unfold> int8_unfold;

// Int8Quantize with measure, of rows[r, k] of any floating dtype. ValueError for what is not finite on the CPU.
void quantize_rows_into(const char* op, const Tensor& rows, const Tensor& codes, const Tensor& most);

template <class Args> void call_int8(const char* op, const KernelTable<Args>& table, const Args& args, Device device) {
  auto kernel = table.find(device, args);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", device);
  kernel(args);
}

}  // namespace sf
