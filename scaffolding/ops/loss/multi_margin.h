// Margins between the classes of each row. Names, arguments and defaults are torch.nn.functional's.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// input [N, C] or [C]; target: class numbers [N] or []; weight [C], by the target's class: the mean over the other
// classes j of max(0, margin - input[target] + input[j])^p, p 1 or 2.
Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int64_t p = 1, double margin = 1,
                         const Tensor& weight = {}, const std::string& reduction = "mean");
// input and target [N, C] or [C]; a row of target lists classes up to its first -1: the sum over those classes i and
// the others j of max(0, 1 - input[i] + input[j]) / C.
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean");

}  // namespace sf
