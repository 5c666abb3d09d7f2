// Einstein summation.
#pragma once
#include "scaffolding/core/tensor.h"

namespace sf {

// Sums of products in Einstein's notation: "bij,bjk->bik". Letters name dimensions; "..." stands for dimensions that
// broadcast; a letter twice in one operand takes its diagonal; letters absent from the output are summed. Without "->"
// the output has the letters that occur once, in alphabetical order.
// Operands are contracted from left to right by matrix products.
Tensor einsum(const std::string& equation, const Tensors& operands);

}  // namespace sf
