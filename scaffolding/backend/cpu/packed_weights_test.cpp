#include "scaffolding/backend/cpu/packed_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "scaffolding/core/env.h"

namespace sf::cpu {

class PackedWeights : public testing::Test {
 protected:
  void SetUp() override {
    forget_packed(nullptr, SIZE_MAX);
    set_packed_limit(4 << 20);
  }
  void TearDown() override {
    forget_packed(nullptr, SIZE_MAX);
    set_packed_limit(size_t(env::integer("SF_PACKED_WEIGHTS_MB")) << 20);
  }
  // Asks for a packed MB of each weight of a model; how many had to be packed, or cannot be kept.
  int pass(int model, int weights) {
    int missed = 0;
    for (int i = 0; i < weights; ++i) {
      const PackedKey key{.data = &memory_[size_t(model * 16 + i)], .version = 1};
      bool packs = false;
      PackedWeight w(key, 1 << 20, [&](void*) { packs = true; });
      missed += packs || !w.get();
    }
    return missed;
  }
  std::vector<char> memory_ = std::vector<char>(64);
};

TEST_F(PackedWeights, of_a_model_that_is_larger_than_the_limit_a_part_is_kept) {
  EXPECT_EQ(pass(0, 6), 6);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pass(0, 6), 2);
  EXPECT_EQ(packed_total(), size_t(4) << 20);
}

TEST_F(PackedWeights, those_of_a_model_that_is_no_longer_called_give_way) {
  pass(0, 4), pass(0, 4);
  EXPECT_EQ(pass(1, 4), 4);
  EXPECT_EQ(pass(1, 4), 4);  // asked for again: kept from now on
  EXPECT_EQ(pass(1, 4), 0);
}

}  // namespace sf::cpu
