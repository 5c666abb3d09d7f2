// Plain data between the ops of this folder and their kernels. Offsets and strides are in elements.
#pragma once
#include "scaffolding/core/kernel.h"

namespace sf {

// Checks positions (int64, any strides) against [low, high) and, where `offset` is given, adds their offsets to it:
// offset[i] += (index[i] < 0 ? index[i] + high : index[i]) * stride, in row-major order.
// Where a value is wrong the offset becomes negative and stays so. A device that works by itself need not wait, unless
// `waits`: it reports the value later, as an IndexError of op and dim (< 0: of none), and finds nothing now.
struct Positions {
  TensorView index;
  int64_t low, high, stride;
  int64_t* offset;  // may be null
  int64_t* bad;     // out, host memory: a wrong value, where *found becomes true
  bool* found;
  const char* op;  // a literal
  int64_t dim;
  bool waits = false;
};
extern KernelTable<Positions> positions_kernel;

// out[i] = in[i + offset[i] * scale]. All three have out's shape; in has stride 0 in indexed dimensions.
// Bytes are only moved.
// Offsets that are not in [0, bound) were reported: some element of in is read instead. Or, with `wrong`, which is host
// memory, on the CPU alone: they were not looked at; *wrong becomes true where one is not, and nothing is read there.
struct Take {
  TensorView out, in, offset;
  int64_t scale;
  int64_t bound;
  bool* wrong = nullptr;
};
extern KernelTable<Take> take_kernel;

// out[i + offset[i] * scale] = (or +=) src[i]. All three have src's shape; out has stride 0 in `dim`, the one indexed
// dimension, along which writes happen in order. Added in dtype: float32 or wider for floats.
// Offsets that are not in [0, bound) were reported: nothing is written there.
struct Scatter {
  TensorView out, src, offset;
  int64_t scale;
  int dim;
  bool accumulate;
  int64_t bound;
};
extern KernelTable<Scatter> scatter_kernel;

// out[..., offset[p], ...] = (or +=) src[..., p, ...] for whole slices. out has stride 0 in `dim`, the points.
// Offsets that are not in [0, bound) are left out. 16-bit floats add in float32.
struct Put {
  TensorView out, src;
  int dim;
  const int64_t* offset;  // src.sizes[dim] of them
  bool accumulate;
  int64_t bound;
};
extern KernelTable<Put> put_kernel;

// dense in[n]: the flat positions of elements that are not zero. First pass (positions null): *count; second:
// fills them.
struct NonZero {
  TensorView in;
  int64_t* positions;  // [count, ndim]
  int64_t* count;      // host memory
};
extern KernelTable<NonZero> nonzero_kernel;

}  // namespace sf
