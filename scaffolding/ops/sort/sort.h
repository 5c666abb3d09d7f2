// Sorting along one dimension. NaN counts as larger than every number. Equal elements always keep their order, so that
// `stable` changes nothing; it is there for torch's callers.
#pragma once
#include <tuple>

#include "scaffolding/core/tensor.h"

namespace sf {

// values, int64 indices
std::tuple<Tensor, Tensor> sort(const Tensor& input, int64_t dim = -1, bool descending = false, bool stable = false);
Tensor argsort(const Tensor& input, int64_t dim = -1, bool descending = false, bool stable = false);
// The k largest (or smallest) and their indices, best first whatever `sorted` says; of equals the first.
std::tuple<Tensor, Tensor> topk(const Tensor& input, int64_t k, int64_t dim = -1, bool largest = true,
                                bool sorted = true);
// Where in x[..., n] the elements of ranks[..., k], int64 in [0, n), stand in the order of the last dimension: that
// order's indices there. Off the tape.
Tensor places_of_ranks(const Tensor& x, const Tensor& ranks);

}  // namespace sf
