// The reduction argument of losses.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf::loss {

enum class Reduce { None, Mean, Sum, BatchMean };
Reduce reduce_from(const char* op, const std::string& reduction, bool batchmean = false);  // ValueError for other words
Tensor reduced(const Tensor& losses, Reduce reduce);                                       // None, Mean or Sum

}  // namespace sf::loss
