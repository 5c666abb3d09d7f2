// Reductions over any dimensions. An empty dim means all of them. NaN propagates; a reduction of nothing gives the
// neutral element (0, 1, NaN for means, -inf for logsumexp) and is refused where there is none (maxima, minima).
#pragma once
#include <tuple>

#include "scaffolding/core/tensor.h"

namespace sf {

// bool and integers sum to int64
Tensor sum(const Tensor& input, const Shape& dim = {}, bool keepdim = false, std::optional<DType> dtype = {});
Tensor mean(const Tensor& input, const Shape& dim = {}, bool keepdim = false, std::optional<DType> dtype = {});
Tensor prod(const Tensor& input, const Shape& dim = {}, bool keepdim = false, std::optional<DType> dtype = {});

// Variance with divisor (count - correction); unbiased=false is correction 0, unbiased=true is 1.
Tensor var(const Tensor& input, const Shape& dim = {}, const Scalar& correction = 1, bool keepdim = false,
           std::optional<bool> unbiased = {});
Tensor std(const Tensor& input, const Shape& dim = {}, const Scalar& correction = 1, bool keepdim = false,
           std::optional<bool> unbiased = {});
std::tuple<Tensor, Tensor> var_mean(const Tensor& input, const Shape& dim = {}, const Scalar& correction = 1,
                                    bool keepdim = false, std::optional<bool> unbiased = {});
std::tuple<Tensor, Tensor> std_mean(const Tensor& input, const Shape& dim = {}, const Scalar& correction = 1,
                                    bool keepdim = false, std::optional<bool> unbiased = {});

Tensor amax(const Tensor& input, const Shape& dim = {}, bool keepdim = false);  // gradients are shared between equals
Tensor amin(const Tensor& input, const Shape& dim = {}, bool keepdim = false);
// values and int64 indices, the first of equals
std::tuple<Tensor, Tensor> max_dim(const Tensor& input, int64_t dim, bool keepdim = false);
std::tuple<Tensor, Tensor> min_dim(const Tensor& input, int64_t dim, bool keepdim = false);
// without dim: index into the flattened tensor
Tensor argmax(const Tensor& input, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& input, std::optional<int64_t> dim = {}, bool keepdim = false);

Tensor any(const Tensor& input, const Shape& dim = {}, bool keepdim = false);  // bool; uint8 stays uint8, as in torch
Tensor all(const Tensor& input, const Shape& dim = {}, bool keepdim = false);

// (sum |x|^p)^(1/p); p = inf: the largest |x|, -inf: the smallest, 0: how many are not 0.
Tensor norm(const Tensor& input, double p = 2, const Shape& dim = {}, bool keepdim = false,
            std::optional<DType> dtype = {});
Tensor vector_norm(const Tensor& input, double ord = 2, const Shape& dim = {}, bool keepdim = false,
                   std::optional<DType> dtype = {});
Tensor logsumexp(const Tensor& input, const Shape& dim, bool keepdim = false);

Tensor cumsum(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});
Tensor cumprod(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});

}  // namespace sf
