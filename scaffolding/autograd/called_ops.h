// The two ops that the tape calls itself. They stand above it, in ops/pointwise and ops/copy: declared here once more,
// and joined by the linker.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor add(const Tensor& input, const Tensor& other, const Scalar& alpha);  // gradients that meet in one tensor
void copy_bytes(const Tensor& dst, const Tensor& src);  // dst's bytes become src's values, off the tape

}  // namespace sf
