// The loss of sequences whose alignment is not known, as a layer.
#pragma once
#include "scaffolding/nn/loss.h"

namespace sf::nn {

// log_probs[T, N, C] (or [T, C]), targets [N, S] or joined, and the lengths of both: see ctc_loss.
struct CTCLoss : Loss {
  int64_t blank;
  bool zero_infinity;
  SF_MODULE(CTCLoss)
  explicit CTCLoss(int64_t blank = 0, const std::string& how = "mean", bool zero_infinity = false);
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) const;
};

}  // namespace sf::nn
