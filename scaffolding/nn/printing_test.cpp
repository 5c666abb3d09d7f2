#include "scaffolding/nn/printing.h"

#include <gtest/gtest.h>

#include <sstream>

#include "scaffolding/core/printing.h"
#include "scaffolding/nn/linear.h"
#include "scaffolding/ops/ops.h"

namespace sf {
namespace {

template <class T> std::string printed(T&& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TEST(Printing, TensorsAreWrittenAsTorchWritesThem) {
  EXPECT_EQ(printed(full({2, 2}, 1.5)), "tensor([[1.5000, 1.5000],\n        [1.5000, 1.5000]])");
  EXPECT_EQ(printed(Tensor()), "undefined");
  EXPECT_EQ(printed(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(printed(kBFloat16), "bfloat16");
  EXPECT_EQ(printed(Device("cpu")), "cpu");
}

TEST(Printing, ModulesAreWrittenAsTorchWritesThem) {
  nn::Linear linear(2, 3);
  EXPECT_EQ(printed<nn::Module&>(linear), "Linear(in_features=2, out_features=3, bias=True)");
  EXPECT_EQ(printed(linear), "Linear(in_features=2, out_features=3, bias=True)");
}

}  // namespace
}  // namespace sf
