// Connectionist temporal classification: the loss of a sequence whose alignment with its input is not known.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// -log of the probability that log_probs[T, N, C] (or [T, C]) spell targets when repetitions are merged and then blanks
// left out. targets: class numbers [N, S], of which the first target_lengths[n] count, or all of them joined,
// [sum(target_lengths)]; a target may not hold the blank. lengths: integers [N], of log_probs at most T.
// reduction: "none" ([N]), "sum", or "mean": of losses divided by their target's length. zero_infinity: a target that
// is too long for its input has the loss 0 and no gradient, rather than infinity. As in torch the gradient is that of
// normalised log_probs: what log_softmax passes on. It cannot be differentiated again.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank = 0, const std::string& reduction = "mean",
                bool zero_infinity = false);

}  // namespace sf
