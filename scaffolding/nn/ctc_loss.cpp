#include "scaffolding/nn/ctc_loss.h"

#include "scaffolding/ops/ctc_loss/ctc_loss.h"

namespace sf::nn {

CTCLoss::CTCLoss(int64_t b, const std::string& how, bool zero) : Loss("CTCLoss", how), blank(b), zero_infinity(zero) {}

Tensor CTCLoss::forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                        const Tensor& target_lengths) const {
  return ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity);
}

SF_LAYER(CTCLoss, "blank=0, reduction='mean', zero_infinity=False",
         [](int64_t blank, std::string reduction, bool zero_infinity) {
           return std::make_unique<CTCLoss>(blank, reduction, zero_infinity);
         })
    .doc("-log of the probability that log_probs[T, N, C] spell targets, whose alignment is not known.")
    .forward<&CTCLoss::forward>("log_probs, targets, input_lengths, target_lengths")
    .field<&Loss::reduction>("reduction")
    .field<&CTCLoss::blank>("blank")
    .field<&CTCLoss::zero_infinity>("zero_infinity");

}  // namespace sf::nn
