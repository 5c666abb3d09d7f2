// Activations that are made of other ops. Those with kernels of their own are in ops/pointwise.
#pragma once
#include "scaffolding/core/generator.h"
#include "scaffolding/core/tensor.h"

namespace sf {

// clamp, but what is a NaN has its gradient, as in torch
Tensor hardtanh(const Tensor& input, double min_val = -1, double max_val = 1);
Tensor relu6(const Tensor& input);                   // hardtanh to [0, 6]
Tensor hardsigmoid(const Tensor& input);             // relu6(input + 3) / 6
Tensor celu(const Tensor& input, double alpha = 1);  // max(0, x) + min(0, alpha (exp(x / alpha) - 1))
Tensor selu(const Tensor& input);                    // Klambauer et al. 2017
// input[N, C, ...] where positive, weight * input elsewhere; weight[1], or [C] along the second dimension.
Tensor prelu(const Tensor& input, const Tensor& weight);
Tensor logsigmoid(const Tensor& input);                                 // without overflow
Tensor softsign(const Tensor& input);                                   // input / (1 + |input|)
Tensor tanhshrink(const Tensor& input);                                 // input - tanh(input)
Tensor softshrink(const Tensor& input, double lambd = 0.5);             // towards 0 by lambd, 0 within it
Tensor hardshrink(const Tensor& input, double lambd = 0.5);             // 0 where |input| <= lambd
Tensor threshold(const Tensor& input, double threshold, double value);  // value where input <= threshold
// input where positive, elsewhere input times a slope: drawn for each element from [lower, upper) in training, else
// their mean (Xu et al. 2015).
Tensor rrelu(const Tensor& input, double lower = 1. / 8, double upper = 1. / 3, bool training = false,
             const Generator& generator = {});
Tensor softmin(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});
// Samples from a distribution over dim with the given logits (Jang et al. 2016): softmax((logits + Gumbel noise) /
// tau), or with `hard` its one-hot maximum, whose gradient is that of the softmax.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false, double eps = 1e-10, int64_t dim = -1,
                      const Generator& generator = {});

}  // namespace sf
