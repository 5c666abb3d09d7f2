// Statistics of elements in order, and what is found by bringing equal elements together. NaN is above every number.
#pragma once
#include <tuple>

#include "scaffolding/core/tensor.h"

namespace sf {

// The lower of the two middle elements; NaN where there is one. nanmedian passes over NaN.
Tensor median(const Tensor& input);  // of all; equal elements share the gradient
Tensor nanmedian(const Tensor& input);
// along dim: values and int64 indices, of equals one
std::tuple<Tensor, Tensor> median_dim(const Tensor& input, int64_t dim, bool keepdim = false);
std::tuple<Tensor, Tensor> nanmedian_dim(const Tensor& input, int64_t dim, bool keepdim = false);
// The k-th smallest along dim, k from 1, and where it is.
std::tuple<Tensor, Tensor> kthvalue(const Tensor& input, int64_t k, int64_t dim = -1, bool keepdim = false);
// The most frequent element along dim, of several the smallest, and the last place where it is.
std::tuple<Tensor, Tensor> mode(const Tensor& input, int64_t dim = -1, bool keepdim = false);

// The elements at q * (n - 1) of the order along dim (of all elements without one). q is a number or a tensor [k] of
// numbers in [0, 1], of input's dtype, whose dimension comes first in the result. Between two elements interpolation
// says: "linear", "lower", "higher", "midpoint" or "nearest". nanquantile passes over NaN.
Tensor quantile(const Tensor& input, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                const std::string& interpolation = "linear");
Tensor nanquantile(const Tensor& input, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                   const std::string& interpolation = "linear");

// The different elements in order; where each element of input is among them, with return_inverse; how often each is
// there, with return_counts. With dim: different slices, in the order of their elements. Always sorted.
Tensors unique(const Tensor& input, bool sorted = true, bool return_inverse = false, bool return_counts = false,
               std::optional<int64_t> dim = {});
// Of each run of equal neighbours one.
Tensors unique_consecutive(const Tensor& input, bool return_inverse = false, bool return_counts = false,
                           std::optional<int64_t> dim = {});

}  // namespace sf
