// Dropout: elements (or whole channels) are zeroed with probability p and the others scaled by 1 / (1 - p), in training
// only. The mask is what torch's CPU generator draws for the same seed; backward keeps it as one byte per element.
#pragma once
#include "scaffolding/core/generator.h"
#include "scaffolding/core/tensor.h"

namespace sf {

Tensor dropout(const Tensor& input, double p = 0.5, bool training = true, const Generator& generator = {});
// One draw per channel of input[N, C, ...]; 1d and 3d also take inputs without a batch: [C, L], [C, D, H, W].
Tensor dropout1d(const Tensor& input, double p = 0.5, bool training = true, const Generator& generator = {});
Tensor dropout2d(const Tensor& input, double p = 0.5, bool training = true, const Generator& generator = {});
Tensor dropout3d(const Tensor& input, double p = 0.5, bool training = true, const Generator& generator = {});
// any rank from 2
Tensor feature_dropout(const Tensor& input, double p = 0.5, bool training = true, const Generator& generator = {});
// Dropped elements become selu's lowest value, and all are scaled and shifted so that mean 0 and variance 1 stay
// (Klambauer et al. 2017).
Tensor alpha_dropout(const Tensor& input, double p = 0.5, bool training = false, const Generator& generator = {});
// The same for whole channels of input[N, C, ...].
Tensor feature_alpha_dropout(const Tensor& input, double p = 0.5, bool training = false,
                             const Generator& generator = {});

}  // namespace sf
