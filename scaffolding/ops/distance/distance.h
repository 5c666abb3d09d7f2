// Distances and angles between vectors.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// The cosine of the angle between x1 and x2 along dim; they broadcast. Norms below eps count as eps.
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim = 1, double eps = 1e-8);
// The p-norm of x1 - x2 + eps over the last dimension; x1 and x2 broadcast.
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p = 2, double eps = 1e-6, bool keepdim = false);
// input divided by its p-norm over dim, or by eps where that is smaller.
Tensor normalize(const Tensor& input, double p = 2, int64_t dim = 1, double eps = 1e-12);

}  // namespace sf
