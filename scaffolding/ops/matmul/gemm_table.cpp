#include "scaffolding/ops/matmul/kernel.h"
#include "scaffolding/ops/matmul/linear_gradient.h"

namespace sf {

constinit KernelTable<Gemm> gemm{"gemm"};
constinit KernelTable<LinearGradient> linear_gradient{"linear_gradient"};

}  // namespace sf
