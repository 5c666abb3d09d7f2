#include "scaffolding/models/parts/resnet.h"

#include <gtest/gtest.h>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cpu/isa.h"
#include "scaffolding/ops/ops.h"

namespace sf::models {

// A large picture that only the block has is overwritten: the result is the same, and no other tensor changes.
TEST(ResnetBlock2D, LargePicturesAreChangedInPlace) {
  autograd::NoGrad off;
  manual_seed(1);
  const int64_t out = 16;
  for (int64_t in : {16, 32}) {
    ResnetBlock2D block(in, out, {.temb_channels = 8, .groups = 4});
    block.eval();
    const Tensor x = to_channels_last(randn({1, in, 520, 520})), temb = randn({1, 8}), kept = x.clone();
    const Tensor expected = block(x, temb);
    EXPECT_EQ(amax(abs(x - kept)).item(), 0);
    Tensor moved = x.clone();
    const void* bytes = moved.data_ptr();
    const Tensor y = block(std::move(moved), temb);
    if (cpu::has(cpu::Isa::avx2)) EXPECT_EQ(y.data_ptr(), bytes);  // the baseline has no kernel for it
    EXPECT_EQ(y.shape(), (Shape{1, out, 520, 520}));
    EXPECT_LT(amax(abs(y - expected)).item(), 1e-4 * amax(abs(expected)).item());
  }
}

}  // namespace sf::models
