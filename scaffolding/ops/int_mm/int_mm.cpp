#include "scaffolding/ops/int_mm/int_mm.h"

#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/matmul/matmul.h"

namespace sf {

constinit KernelTable<IntMm> int_mm_kernel{"int_mm"};

Tensor int_mm(const Tensor& input, const Tensor& mat2) {
  check_defined("_int_mm", "input", input);
  check_defined("_int_mm", "mat2", mat2);
  SF_CHECK_AS(TypeError, input.dtype() == kInt8 && mat2.dtype() == kInt8, "_int_mm: needs two int8 matrices, got ",
              input.dtype(), " and ", mat2.dtype());
  SF_CHECK(input.ndim() == 2 && mat2.ndim() == 2, "_int_mm: needs input [M, K] and mat2 [K, N], got ", input.shape(),
           " and ", mat2.shape());
  SF_CHECK(input.size(1) == mat2.size(0), "_int_mm: ", input.shape(), " @ ", mat2.shape(),
           " needs equal inner sizes, got ", input.size(1), " and ", mat2.size(0));
  check_same_device("_int_mm", input, mat2);
  Tensor c = empty({input.size(0), mat2.size(1)}, kInt32, input.device());
  if (c.numel() == 0) return c;
  IntMm g{input, mat2, c};
  if (auto kernel = int_mm_kernel.find(input.device(), g)) {
    kernel(g);
    return c;
  }
  return mm(to_dtype(input, kInt32), to_dtype(mat2, kInt32));
}

SF_OP_NAMED("_int_mm", int_mm, "input, mat2")
    .doc("input[M, K] @ mat2[K, N] of int8, summed in int32.")
    .like("torch._int_mm(input, mat2)")
    .kernels(int_mm_kernel)
    .no_gradient();

}  // namespace sf
