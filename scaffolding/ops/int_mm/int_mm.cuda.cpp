// Products of int8 matrices on CUDA through cuBLASLt, which has them where both are dense along k and k, n and the
// distances of rows are multiples of 4 (cublasLtMatmul, "To use IMMA kernels"). What it has not becomes int32 and goes
// to our own kernel (int_mm.cpp), with the same sums.
#include "scaffolding/ops/int_mm/kernel.h"
#include "scaffolding/ops/matmul/cublaslt_product.h"

namespace sf::cuda {
namespace {

Product product_of(const IntMm& g) {
  return {kInt8,
          kInt8,
          kInt32,
          1,
          *columns_of(batch_of_one(g.b)),
          *columns_of(batch_of_one(g.a)),
          *columns_of(batch_of_one(g.c)),
          {},
          false,
          g.c.device};
}

bool supports(const IntMm& g) {
  const int64_t k = g.a.sizes[1], n = g.c.sizes[1];
  auto fits = [](const TensorView& t, int64_t along, int64_t to_next, int64_t others) {
    return along == 1 && (others == 1 || to_next % 4 == 0) && reinterpret_cast<uintptr_t>(t.data) % 4 == 0;
  };
  return k > 0 && k % 4 == 0 && n % 4 == 0 && fits(g.a, g.a.strides[1], g.a.strides[0], g.a.sizes[0]) &&
         fits(g.b, g.b.strides[0], g.b.strides[1], n) && product_of(g).exists();
}
void run(const IntMm& g) {
  if (!product_of(g).run(1, 0)) check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "_int_mm");
}

SF_KERNEL(int_mm_kernel, DeviceType::CUDA, "cublaslt", 10, run, supports)

}  // namespace
}  // namespace sf::cuda
