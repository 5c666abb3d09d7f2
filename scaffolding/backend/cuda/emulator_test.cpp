// What only the emulator of tests/cuda_emulator can show: allocations that fail, calls of the runtime. Skips elsewhere.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/core/env.h"
#include "scaffolding/ops/attention/attention.h"
#include "scaffolding/ops/conv/conv.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/interpolate/interpolate.h"
#include "scaffolding/ops/layer_norm/layer_norm.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/sort/sort.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

class CudaEmulator : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "no emulator: " << why;
    fail_after_ = reinterpret_cast<void (*)(int64_t)>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_fail_allocations_after"));
    if (!fail_after_) GTEST_SKIP() << "a GPU is here, not the emulator";
  }
  void (*fail_after_)(int64_t) = nullptr;
};

TEST_F(CudaEmulator, says_what_it_is) {
  EXPECT_NE(accelerator(Device("cuda")).properties(0).name.find("emulator"), std::string::npos);
  EXPECT_THROW(accelerator(Device()), ValueError);
}

TEST_F(CudaEmulator, every_failed_allocation_is_an_error_and_leaks_nothing) {
  if (env::flag("SF_CUDA_CACHE"))
    GTEST_SKIP() << "the cache asks for many blocks at a time: SF_CUDA_CACHE=0 lets each allocation fail";
  Accelerator& gpu = accelerator(Device("cuda"));
  auto step = [] {
    Tensor x = arange(0, 64 * 48, 1, kFloat32).reshape({64, 48}).cuda().requires_grad_(),
           w = ones({48}, kFloat32).cuda().requires_grad_();
    Tensor filter = full({2, 1, 3, 3}, 0.01, kFloat32).cuda().requires_grad_();
    Tensor y = linear(layer_norm(x, {48}, w) * x, full({48, 48}, 1e-3, kFloat32).cuda(), w).reshape({1, 2, 64, 24});
    y = scaled_dot_product_attention(y, y, y);
    y = conv2d(y.reshape({1, 1, 64, 48}), filter, {}, {1}, ConvPadding(Shape{1}));
    y = std::get<0>(sort(interpolate(y, Shape{32, 20}, {}, "bilinear"), -1));
    sum(cumsum(y, 2)).backward();
    return x.grad().cpu().to_vector();
  };
  step();  // tables that stay on the device are there from now on
  gpu.empty_cache(0);
  size_t before = gpu.memory(0).allocated;
  int failures = 0;
  for (int64_t n = 0;; ++n) {
    gpu.empty_cache(0);
    fail_after_(n);
    bool failed = false;
    try {
      step();
    } catch (const RuntimeError& e) {
      failed = true;
      EXPECT_NE(std::string(e.what()).find("out of memory"), std::string::npos) << e.what();
    }
    fail_after_(-1);
    EXPECT_EQ(gpu.memory(0).allocated, before) << "after allocation " << n << " failed";
    if (!failed) break;
    ++failures;
  }
  EXPECT_GT(failures, 25);
  EXPECT_EQ(step(), step());
}

// Each call of the runtime is host time of every eager op. Of two GPUs, where the current one has to be asked for.
TEST_F(CudaEmulator, ops_call_the_runtime_no_more_than_they_must) {
  if (!env::flag("SF_CUDA_CACHE")) GTEST_SKIP() << "without the cache each tensor is allocated";
  const auto count = reinterpret_cast<int64_t (*)(int)>(dlsym(RTLD_DEFAULT, "sf_cuda_emulator_count"));
  Tensor x = ones({4, 16}, kBFloat16).cuda(), w = ones({16, 16}, kBFloat16).cuda(), b = ones({16}, kBFloat16).cuda();
  auto calls = [&](const std::function<Tensor()>& op) {
    op(), op();
    const int64_t all = count(23), current = count(24);
    op();
    return std::pair(count(23) - all, count(24) - current);
  };
  // The device and a launch.
  EXPECT_EQ(calls([&] { return x + x; }), std::pair(int64_t(2), int64_t(1)));
  EXPECT_EQ(calls([&] { return layer_norm(x, {16}, b, b); }), std::pair(int64_t(2), int64_t(1)));
  // The device and the library.
  EXPECT_EQ(calls([&] { return linear(x, w, b); }), std::pair(int64_t(2), int64_t(1)));
}

TEST_F(CudaEmulator, peaks_and_the_cache_are_counted) {
  Accelerator& gpu = accelerator(Device("cuda"));
  gpu.empty_cache(0);
  gpu.reset_peak(0);
  size_t before = gpu.memory(0).allocated, reserved = gpu.memory(0).reserved;
  { Tensor x = empty({3 << 20}, kFloat32, Device("cuda")); }
  MemoryStatistics m = gpu.memory(0);
  EXPECT_EQ(m.allocated, before);
  EXPECT_EQ(m.max_allocated, before + (12u << 20));
  EXPECT_EQ(m.max_reserved, reserved + (12u << 20));
  gpu.empty_cache(0);
  EXPECT_EQ(gpu.memory(0).reserved, reserved);
  gpu.reset_peak(0);
  EXPECT_EQ(gpu.memory(0).max_allocated, before);
}

}  // namespace sf
