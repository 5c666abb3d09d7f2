// The residual as cuBLASLt's C, which it adds to the product as that leaves the registers:
// one more read instead of two reads and a write.
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/fused/linear_add/kernel.h"
#include "scaffolding/ops/matmul/cublaslt_product.h"

namespace sf::cuda {
namespace {

Product product_of(const LinearAdd& g) {
  ProductEpilogue epilogue{g.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT, g.bias, {}};
  return {g.b.dtype,
          g.a.dtype,
          g.c.dtype,
          1,
          *columns_of(g.b),
          *columns_of(g.a),
          *columns_of(g.c),
          epilogue,
          g.a.dtype == kFloat32 && matmul_allow_tf32(),
          g.c.device,
          {},
          g.residual.data};
}

void run(const LinearAdd& g) {
  if (!product_of(g).run(1, 1)) check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "linear_add");
}

// In float64 cuBLASLt has no epilogue with a bias.
bool supports(const LinearAdd& g) {
  if (!(g.a.dtype == kFloat32 || is_reduced(g.a.dtype)) || !columns_of(g.a) || !columns_of(g.b) || !columns_of(g.c) ||
      columns_of(g.c)->as_written)
    return false;
  return g.residual.is_contiguous() && product_of(g).exists();
}

SF_KERNEL(linear_add_kernel, DeviceType::CUDA, "cublaslt", 10, run, supports)

}  // namespace
}  // namespace sf::cuda
