// Places of values in sorted sequences, and among other values.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// For each of input[..., m] the first place of sorted_sequence[..., n] (or [n]) whose element is not below it; right,
// or side "right": above it. sorter[..., n]: the order that sorts the sequence, when it is not sorted itself. int64, or
// int32 with out_int32. No gradient.
Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& input, bool out_int32 = false, bool right = false,
                    const std::optional<std::string>& side = {}, const Tensor& sorter = {});
// searchsorted of input[...] in boundaries[n].
Tensor bucketize(const Tensor& input, const Tensor& boundaries, bool out_int32 = false, bool right = false);
// Whether each of elements is (with invert: is not) one of test_elements; bool, shaped as elements.
Tensor isin(const Tensor& elements, const Tensor& test_elements, bool assume_unique = false, bool invert = false);

// How often each of 0 .. max(input) is in input[n], at least minlength numbers: int64, or sums of weights[n].
Tensor bincount(const Tensor& input, const Tensor& weights = {}, int64_t minlength = 0);
// How many elements fall into each of bins equal parts of [min, max]; of input's own range where the two are equal.
// Elements outside count nowhere. In input's dtype.
Tensor histc(const Tensor& input, int64_t bins = 100, const Scalar& min = 0, const Scalar& max = 0);

}  // namespace sf
