// The loop around row kernels: any strides, broadcasting by stride 0, threads.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/pointwise/kernel.h"

namespace sf::pointwise {

// out and every given input have one shape (inputs expanded); inputs are of dtype `dtype`.
void run(const char* op, const KernelTable<PointwiseRow>& table, const TensorView& out, std::initializer_list<TensorView> inputs, DType dtype,
         double p0 = 0, double p1 = 0);

}  // namespace sf::pointwise
