// What tests of the kernels for Hopper's warpgroup instructions begin with.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "scaffolding/backend/accelerator.h"
#include "scaffolding/backend/backend.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/random/random.h"

namespace sf::test {

// On a GPU of compute capability 9.0, or the emulator of one: these kernels wherever they fit.
class OnWarpgroups : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend_available(Device::CUDA, &why)) GTEST_SKIP() << "unproven here: " << why;
    const DeviceProperties gpu = accelerator(Device::CUDA).properties(0);
    if (gpu.major != 9 || gpu.minor != 0) GTEST_SKIP() << "unproven here: no GPU of compute capability 9.0";
    before_ = warpgroup_products();
    set_warpgroup_products(WarpgroupProducts::On);
    manual_seed(1);
  }
  void TearDown() override {
    set_warpgroup_products(before_);
    set_warpgroup_tile({});
  }

  // Numbers that the dtype holds, as float64.
  static Tensor numbers(Shape shape, DType t) { return to_dtype(to_dtype(sf::randn(shape), t), kFloat64); }

 private:
  WarpgroupProducts before_ = warpgroup_products();
};

}  // namespace sf::test
