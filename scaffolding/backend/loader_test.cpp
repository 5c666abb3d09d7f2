// What a machine without a GPU says, with and without libscaffolding_cuda.so.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "scaffolding/backend/backend.h"
#include "scaffolding/core/tensor.h"

namespace sf {

static std::string refusal() {
  try {
    empty({2}, kFloat32, Device("cuda"));
  } catch (const RuntimeError& e) {
    return e.what();
  }
  return "";
}

TEST(CudaLibrary, a_cuda_tensor_without_a_gpu_is_refused_with_the_reason) {
  std::string why;
  if (backend_available(Device::CUDA, &why)) GTEST_SKIP() << "a GPU is here";
  EXPECT_FALSE(why.empty());
  EXPECT_EQ(refusal(), "cuda:0: not available: " + why);
}

TEST(CudaLibrary, names_the_missing_driver) {
  std::string why;
  if (backend_available(Device::CUDA, &why)) GTEST_SKIP() << "a GPU is here";
  if (why.find("libscaffolding_cuda.so is not at") != why.npos)
    GTEST_SKIP() << "libscaffolding_cuda.so was not built: -DSF_BUILD_CUDA=ON";
  if (dlopen("libcuda.so.1", RTLD_LAZY)) GTEST_SKIP() << "a driver is here";
  EXPECT_NE(refusal().find("the NVIDIA driver is missing: libcuda.so.1"), std::string::npos) << refusal();
}

}  // namespace sf
