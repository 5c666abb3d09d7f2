#include "scaffolding/core/provider.h"

#include <gtest/gtest.h>

#include "scaffolding/io/test_folder.h"
#include "scaffolding/ops/ops.h"

namespace sf {
namespace {

TEST(KernelWatcher, ReportsCallsWhileItLives) {
  Tensor a = randn({4, 8}), b = randn({8, 3});
  std::vector<std::string> seen;
  int64_t columns = 0;
  {
    KernelWatcher watcher([&](const KernelCall& call) {
      seen.push_back(call.table.name());
      if (&call.table == &gemm) columns = static_cast<const Gemm*>(call.args)->c.sizes[2];
      EXPECT_GE(call.wall, 0);
    });
    SF_EXPECT_ERROR(RuntimeError, "there is one already", KernelWatcher([](const KernelCall&) {}));
    matmul(a, b);
  }
  matmul(a, b);
  EXPECT_EQ(seen, std::vector<std::string>{"gemm"});
  EXPECT_EQ(columns, 3);
}

}  // namespace
}  // namespace sf
