#include "scaffolding/ops/pixel_shuffle/pixel_shuffle.h"

#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(pixel_shuffle) {
  sample(randn({2, 8, 3, 4}), 2);
  sample(randn({2, 18, 3, 4}).contiguous(MemoryFormat::ChannelsLast), 3);
  sample(randn({4, 3, 2}).transpose(1, 2), 2);
  sample(randn({2, 0, 4, 2, 3}), 2);
  sample(randn({0, 4, 2, 3}), 1);
  rejects("multiple of upscale_factor squared", randn({1, 6, 2, 2}), 2);
  rejects("must be positive", randn({1, 4, 2, 2}), 0);
  rejects("must be [..., C, H, W]", randn({4, 2}), 2);
}
SF_OP_TEST(pixel_unshuffle) {
  sample(randn({2, 2, 6, 4}), 2);
  sample(randn({2, 3, 6, 9}).contiguous(MemoryFormat::ChannelsLast), 3);
  sample(randn({4, 2, 6}).transpose(1, 2), 2);
  rejects("multiples of downscale_factor", randn({1, 1, 3, 2}), 2);
  rejects("must be positive", randn({1, 1, 2, 2}), -1);
}
SF_OP_TEST(channel_shuffle) {
  sample(randn({2, 6, 3, 2}), 3);
  sample(randn({2, 6, 5}), 2);
  sample(randn({4, 3, 2, 4}).transpose(1, 3), 2);
  rejects("multiple of groups", randn({1, 6, 2}), 4);
  rejects("multiple of groups", randn({1, 6, 2}), 0);
  rejects("3 or more dimensions", randn({4, 2}), 2);
}

}  // namespace sf::test
