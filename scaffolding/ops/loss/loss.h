// Losses. Names, arguments and defaults are torch.nn.functional's; reduction is "none", "mean" or "sum".
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input: logits [N, C, d1, ...] or [C]. target: class indices [N, d1, ...] (any integer dtype; positions of
// ignore_index do not count) or probabilities of input's shape. weight: [C].
// The mean is over the weights of the targets.
Tensor cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight = {}, int64_t ignore_index = -100,
                     const std::string& reduction = "mean", double label_smoothing = 0);
// The same from log-probabilities.
Tensor nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight = {}, int64_t ignore_index = -100,
                const std::string& reduction = "mean");

// weight, of input's shape, multiplies each element's loss. As in torch, the mean of mse_loss and l1_loss is then over
// the weights, huber_loss's over the elements.
Tensor mse_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean",
                const Tensor& weight = {});
Tensor l1_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean",
               const Tensor& weight = {});
Tensor huber_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean", double delta = 1,
                  const Tensor& weight = {});
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean",
                      double beta = 1);

// input: logits; target: probabilities of the same shape; weight and pos_weight broadcast.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                                        const std::string& reduction = "mean", const Tensor& pos_weight = {});
// sum target * (log target - input), input being log-probabilities;
// reduction may also be "batchmean" (sum over size(0)).
Tensor kl_div(const Tensor& input, const Tensor& target, const std::string& reduction = "mean",
              bool log_target = false);

// input: probabilities, in [0, 1]; target of the same shape; weight broadcasts. Logarithms count as at least -100.
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                            const std::string& reduction = "mean");
// input: logits [..., C]; target: 0 or 1 for each class; the mean over classes, one loss for each of [...].
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                                   const std::string& reduction = "mean");
// target: 1 or -1. log(1 + exp(-target * input)).
Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean");
// input where target is 1, max(0, margin - input) where it is -1.
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin = 1,
                            const std::string& reduction = "mean");
// max(0, margin - target * (input1 - input2)).
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin = 0,
                           const std::string& reduction = "mean");
// input1, input2 [N, D] and target [N], or [D] and a 0-d target: 1 - cos where target is 1, max(0, cos - margin)
// where it is -1.
Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin = 0,
                             const std::string& reduction = "mean");
// max(0, margin + |anchor - positive|_p - |anchor - negative|_p), over the last dimension; swap:
// the nearer of anchor and positive counts.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin = 1,
                           double p = 2, double eps = 1e-6, bool swap = false, const std::string& reduction = "mean");
// Of a Poisson distribution with rate exp(input), or input (+ eps); full adds Stirling's approximation of log target!.
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input = true, bool full = false,
                        double eps = 1e-8, const std::string& reduction = "mean");
// Of a normal distribution of mean input and variance var (at least eps); var is a number, or of input's shape, or of
// that with a last size of 1 or none.
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var, bool full = false,
                         double eps = 1e-6, const std::string& reduction = "mean");

}  // namespace sf
