#include "scaffolding/ops/matmul/kernel.h"

namespace sf {

constinit KernelTable<Gemm> gemm{"gemm"};

}  // namespace sf
