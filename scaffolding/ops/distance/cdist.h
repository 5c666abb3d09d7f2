// Distances between rows, all pairs of them.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// The p-norms of x1[..., P, M] - x2[..., R, M] for each pair of rows: [..., P, R]. p = inf: the largest difference.
// compute_mode says how distances of p = 2 are computed: from products of matrices ("use_mm_for_euclid_dist"), which
// loses digits of small ones, from differences ("donot_use_mm_for_euclid_dist"), or from products above 25 rows.
Tensor cdist(const Tensor& x1, const Tensor& x2, double p = 2,
             const std::string& compute_mode = "use_mm_for_euclid_dist_if_necessary");
// The p-norms of row i - row j of input[N, M] for i < j: [N * (N - 1) / 2], in the order of i, then j.
Tensor pdist(const Tensor& input, double p = 2);

}  // namespace sf
