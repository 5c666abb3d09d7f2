// Shared by the files of this folder: which dimensions go, what shape is left, and the call of the kernel.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/reduce/kernel.h"

namespace sf::reduction {

struct Dims {
  Shape reduced;  // wrapped; all dimensions when none were named
  Shape kept;     // the result's shape with keepdim: 1 where reduced
  Shape result;   // the result's shape
  int64_t count;  // elements folded into one
};
// Checks input and dim. `nonempty` refuses to reduce no elements.
Dims dims_of(const char* op, const Tensor& input, const Shape& dim, bool keepdim, bool nonempty = false);

// x reduced off the tape; the result has shape d.result and dtype t.
Tensor run(const char* op, Reduction what, const Tensor& x, const Dims& d, DType t, double p = 0, double divisor = 1,
           const Tensor& center = {});

// x with dimension `dim` last, as kernels along a dimension want it; a 0-d tensor becomes [1].
TensorView with_last(const Tensor& x, int64_t dim);

// dy as it was reduced, seen with x's shape again (stride 0).
Tensor spread(const Tensor& dy, const Dims& d, const Shape& full);

}  // namespace sf::reduction
