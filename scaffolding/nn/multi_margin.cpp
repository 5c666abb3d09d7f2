#include "scaffolding/nn/multi_margin.h"

#include "scaffolding/ops/loss/multi_margin.h"

namespace sf::nn {

MultiMarginLoss::MultiMarginLoss(int64_t power, Number m, Tensor w, const std::string& how)
    : Loss("MultiMarginLoss", how), p(power), margin(m), weight(w) {
  SF_CHECK(p == 1 || p == 2, "MultiMarginLoss: only p == 1 and p == 2 supported, got ", p);
  SF_CHECK(!w || w.ndim() == 1, "MultiMarginLoss: weight must have one dimension, got ", w.shape());
}
Tensor MultiMarginLoss::forward(const Tensor& x, const Tensor& y) const {
  return multi_margin_loss(x, y, p, margin, weight, reduction);
}
Tensor MultiLabelMarginLoss::forward(const Tensor& x, const Tensor& y) const {
  return multilabel_margin_loss(x, y, reduction);
}

using OptionalBool = std::optional<bool>;
SF_LAYER(MultiMarginLoss, "p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction='mean'",
         [](int64_t p, Number margin, Tensor weight, OptionalBool size_average, OptionalBool reduce,
            std::string reduction) {
           return std::make_unique<MultiMarginLoss>(p, margin, weight, reduction_of(size_average, reduce, reduction));
         })
    .doc("The mean over classes j other than target of max(0, margin - input[target] + input[j])^p.")
    .forward<&MultiMarginLoss::forward>("input, target")
    .field<&Loss::reduction>("reduction")
    .field<&MultiMarginLoss::p>("p")
    .field<&MultiMarginLoss::margin>("margin");
SF_LAYER(MultiLabelMarginLoss, "size_average=None, reduce=None, reduction='mean'",
         [](OptionalBool size_average, OptionalBool reduce, std::string reduction) {
           return std::make_unique<MultiLabelMarginLoss>(reduction_of(size_average, reduce, reduction));
         })
    .doc("max(0, 1 - input[i] + input[j]) of classes i in target, up to its first -1, and j not in it, summed, over C.")
    .forward<&MultiLabelMarginLoss::forward>("input, target")
    .field<&Loss::reduction>("reduction");

}  // namespace sf::nn
