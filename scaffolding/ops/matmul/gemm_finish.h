// What follows a product on CUDA where cuBLASLt's epilogues have no words for it.
#pragma once
#include "scaffolding/ops/matmul/kernel.h"

namespace sf::cuda {

// c = act(product + bias) + beta * c, pre = product + bias. product has c's shape and any floating dtype;
// it may be c or pre itself.
// Of g the operands a and b and alpha are not looked at. On the device's current stream.
void finish_product(const Gemm& g, const TensorView& product);

}  // namespace sf::cuda
