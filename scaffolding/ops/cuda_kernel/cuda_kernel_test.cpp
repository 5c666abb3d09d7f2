#include "scaffolding/ops/cuda_kernel/cuda_kernel.h"

#include <gtest/gtest.h>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf {

TEST(CudaKernel, launches_and_counts_as_a_write) {
  std::string why;
  if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << why;
  cuda::Kernel add(R"(extern "C" __global__ void add(const float* x, double by, bool twice, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + float(by) * (twice ? 2 : 1);
  })",
                   "add");
  Tensor x = arange(0, 300, 1, kFloat32).cuda(), y = empty({300}, kFloat32, Device("cuda"));
  add.launch({.grid = {2, 1, 1}, .block = {256, 1, 1}}, {x, 0.5, true, y, int64_t(300)});
  std::vector<double> got = y.cpu().to_vector();
  for (int i = 0; i < 300; ++i) ASSERT_EQ(got[size_t(i)], i + 1.0);
  EXPECT_THROW(add.launch({.grid = {2, 1, 1}, .block = {256, 1, 1}}, {x, 0.5, true, y}), TypeError);
}

}  // namespace sf
