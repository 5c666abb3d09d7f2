// Losses. Names, arguments and defaults are torch.nn.functional's; reduction is "none", "mean" or "sum".
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input: logits [N, C, d1, ...] or [C]. target: class indices [N, d1, ...] (any integer dtype; positions of ignore_index
// do not count) or probabilities of input's shape. weight: [C]. The mean is over the weights of the targets.
Tensor cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight = {}, int64_t ignore_index = -100, const std::string& reduction = "mean",
                     double label_smoothing = 0);
// The same from log-probabilities.
Tensor nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight = {}, int64_t ignore_index = -100, const std::string& reduction = "mean");

Tensor mse_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean");
Tensor l1_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean");
Tensor huber_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean", double delta = 1);
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean", double beta = 1);

// input: logits; target: probabilities of the same shape; weight and pos_weight broadcast.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight = {}, const std::string& reduction = "mean",
                                        const Tensor& pos_weight = {});
// sum target * (log target - input), input being log-probabilities; reduction may also be "batchmean" (sum over size(0)).
Tensor kl_div(const Tensor& input, const Tensor& target, const std::string& reduction = "mean", bool log_target = false);

}  // namespace sf
