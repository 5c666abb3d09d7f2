#include "scaffolding/ops/pad/pad.h"

#include "scaffolding/ops/op_test.h"

namespace sf::test {

SF_OP_TEST(pad) {
  sample(randn({2, 3, 4}), Shape{1, 2});
  sample(randn({2, 4, 3}).transpose(1, 2), Shape{1, -2, 0, 3}, "constant", 1.5);
  sample(randn({2, 3, 4, 5}).contiguous(MemoryFormat::ChannelsLast), Shape{1, 1, 2, 0});
  sample(randn({2, 3}), Shape{-3, 2, 1, 0}, "constant", 2);
  sample(randn({0, 3}), Shape{1, 1});
  sample(randn({0, 3}), Shape{1, 1, 2, 0});
  sample(randn({3}), Shape{});
  sample(randint(0, 9, {2, 3}), Shape{1, 0, 0, 1}, "constant", 7);
  for (const char* mode : {"reflect", "replicate", "circular"}) {
    sample(randn({2, 3, 5}), Shape{2, 3}, mode);
    sample(randn({3, 5}), Shape{2, -1}, mode);
    sample(randn({2, 3, 5, 4}), Shape{2, 3, 1, 4}, mode);
    sample(randn({2, 3, 5, 4}).contiguous(MemoryFormat::ChannelsLast), Shape{2, 3, 1, 4}, mode);
    sample(randn({1, 2, 3, 4, 3}).transpose(2, 4), Shape{1, 1, 2, 2, 1, 0}, mode);
    sample(randn({0, 3, 5}), Shape{2, 3}, mode);
  }
  sample(randn({2, 3, 5}), Shape{7, 9}, "replicate");
  sample(randn({9, 1, 3, 1}).contiguous(MemoryFormat::ChannelsLast), Shape{1, 2, 2, 1}, "constant", -1);
  sample(randn({9, 4, 2, 3}), Shape{0, 0, 1, 1, -1, 2});
  sample(randint(0, 200, {9, 2, 5}).transpose(0, 1), Shape{2, 0, 0, 1});
  rejects("two numbers per dimension", randn({3}), Shape{1});
  rejects("more than input", randn({3}), Shape{1, 1, 1, 1});
  rejects("no valid size", randn({3}), Shape{-2, -2});
  rejects("no valid size", randn({3}), Shape{int64_t(1) << 62, int64_t(1) << 62});
  rejects("mode must be", randn({3}), Shape{1, 1}, "mirror");
  rejects("can add at most 2", randn({2, 2, 3}), Shape{3, 0}, "reflect");
  rejects("can add at most 3", randn({2, 2, 3}), Shape{4, 0}, "circular");
  rejects("2-D or 3-D input", randn({3}), Shape{1, 1}, "reflect");
  rejects("takes no value", randn({2, 3}), Shape{1, 1}, "reflect", 1.0);
  rejects("cannot hold", randint(0, 9, {3}), Shape{1, 1}, "constant", 0.5);
  rejects("needs entries", randn({2, 0}), Shape{1, 1}, "replicate");
}

}  // namespace sf::test
