#include "scaffolding/ops/fused/spatial_norm/spatial_norm.h"

#include "scaffolding/backend/meta_memory.h"
#include "scaffolding/ops/op_test.h"
#include "scaffolding/ops/ops.h"

namespace sf::test {

SF_OP_TEST(spatial_norm_silu) {
  auto last = [](const Tensor& t) { return to_channels_last(t); };
  sample(randn({2, 8, 3, 4, 4}), 2, randn({8}), randn({8}), randn({2, 8, 2, 2, 2}), randn({2, 8, 2, 2, 2}));
  // the first frame apart; ragged channels, each frame twice; one frame; nothing repeated
  sample(last(randn({1, 16, 5, 4, 6})), 4, randn({16}), randn({16}), last(randn({1, 16, 3, 2, 2})),
         last(randn({1, 16, 3, 2, 2})));
  sample(last(randn({2, 20, 4, 2, 4})), 5, randn({20}), randn({20}), last(randn({2, 20, 2, 1, 4})),
         last(randn({2, 20, 2, 1, 4})), 1e-3);
  sample(last(randn({1, 32, 1, 2, 2})), 8, randn({32}), randn({32}), last(randn({1, 32, 1, 1, 1})),
         last(randn({1, 32, 1, 1, 1})));
  sample(last(randn({1, 4, 2, 3, 3})), 2, randn({4}), randn({4}), last(randn({1, 4, 2, 3, 3})),
         last(randn({1, 4, 2, 3, 3})));
  rejects("must be [N, C, T, H, W]", randn({1, 4, 2, 2}), 2, randn({4}), randn({4}), randn({1, 4, 1, 1, 1}),
          randn({1, 4, 1, 1, 1}));
  rejects("num_groups must divide", randn({1, 4, 2, 2, 2}), 3, randn({4}), randn({4}), randn({1, 4, 1, 1, 1}),
          randn({1, 4, 1, 1, 1}));
  rejects("scale must be [1, 4, t, h, w]", randn({1, 4, 2, 2, 2}), 2, randn({4}), randn({4}), randn({1, 3, 1, 1, 1}),
          randn({1, 4, 1, 1, 1}));
  rejects("two frames or more", randn({1, 4, 3, 2, 2}), 2, randn({4}), randn({4}), randn({1, 4, 1, 1, 1}),
          randn({1, 4, 1, 1, 1}));
  rejects("one shape", randn({1, 4, 2, 2, 2}), 2, randn({4}), randn({4}), randn({1, 4, 1, 1, 1}),
          randn({1, 4, 2, 1, 1}));
}

// GPUs have no kernel for the whole.
TEST(SpatialNorm, IsCountedAsTheDeviceMakesIt) {
  auto counted = [](Device device) {
    auto made = [](const Shape& shape) { return to_channels_last(zeros(shape, kFloat32, Device(Device::Meta))); };
    MetaMemory memory(device);
    MetaMemory::Counting counting(memory);
    const Tensor x = made({1, 8, 4, 16, 16}), z = made({1, 8, 2, 4, 4}), w = zeros({8}, kFloat32, x.device());
    spatial_norm_silu(x, 2, w, w, z, z);
    return memory.peak();
  };
  const int64_t whole = 8 * 4 * 16 * 16 * 4;
  EXPECT_LT(counted(Device()), 3 * whole);
  EXPECT_GT(counted(Device(Device::CUDA)), 3 * whole);
}

}  // namespace sf::test
