// The loop around row kernels: any strides, broadcasting by stride 0, threads.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/pointwise/kernel.h"

namespace sf::pointwise {

// out and every given input have one shape (inputs expanded); inputs are of dtype `dtype`.
void run(const char* op, const PointwiseTable& table, const TensorView& out, std::initializer_list<TensorView> inputs,
         DType dtype, double p0 = 0, double p1 = 0);

// The same for dense host memory: n elements at each pointer.
void run_dense(const char* op, const KernelTable<PointwiseRow>& table, void* out, DType out_dtype, const void* a,
               const void* b, const void* c, int64_t n, DType dtype, double p0 = 0, double p1 = 0);
// b is one number for all elements; `left` puts it in the place of the first input.
void run_splat(const char* op, const KernelTable<PointwiseRow>& table, void* out, DType out_dtype, const void* a,
               double number, bool left, int64_t n, DType dtype, double p0 = 0);

}  // namespace sf::pointwise
