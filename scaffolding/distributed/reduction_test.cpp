#include "scaffolding/distributed/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "scaffolding/core/half.h"
#include "scaffolding/distributed/launcher.h"

using namespace sf;
using namespace sf::distributed;

namespace {

// The binary tree, one level after the other: neighbours are added, and what is left over comes last.
float tree(std::vector<float> level) {
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
    if (level.size() % 2) next.push_back(level.back());
    level = next;
  }
  return level[0];
}

template <class T> void expect_tree(T (*narrow)(float), float (*wide)(T), DType dtype) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> draw(-1, 1);
  for (size_t n = 1; n <= 17; ++n) {
    size_t count = 4099;  // more than a block, and no multiple of anything
    std::vector<std::vector<T>> in(n, std::vector<T>(count));
    std::vector<const void*> pointers;
    for (auto& v : in) {
      for (auto& x : v) x = narrow(draw(random));
      pointers.push_back(v.data());
    }
    for (ReduceOp op : {ReduceOp::SUM, ReduceOp::AVG}) {
      std::vector<float> wanted;
      for (size_t i = 0; i < count; ++i) {
        std::vector<float> level;
        for (auto& v : in) level.push_back(wide(v[i]));
        float sum = tree(level);
        wanted.push_back(wide(narrow(op == ReduceOp::AVG ? sum / float(n) : sum)));
      }
      std::vector<std::vector<T>> copy = in;  // in place, into each of them in turn
      size_t into = n / 2;
      std::vector<const void*> again;
      for (auto& v : copy) again.push_back(v.data());
      reduce(copy[into].data(), again, count, dtype, op, double(n));
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(wide(copy[into][i]), wanted[i]) << n << " addends, number " << i;
    }
  }
}

TEST(ProcessGroupReduction, is_the_tree_over_the_ranks_bit_for_bit) {
  expect_tree<float>([](float x) { return x; }, [](float x) { return x; }, kFloat32);
  expect_tree<BFloat16>([](float x) { return from_float<BFloat16>(x); }, [](BFloat16 x) { return to_float(x); },
                        kBFloat16);
}

TEST(ProcessGroupLauncher, starts_fewer_after_a_quick_failure) {
  LaunchOptions fixed{.processes = 6}, range{.processes = 6, .min_processes = 2, .regrow_seconds = 60};
  EXPECT_EQ(processes_after(fixed, 6, 0), 6);
  EXPECT_EQ(processes_after(range, 6, 59), 4);
  EXPECT_EQ(processes_after(range, 4, 1), 2);
  EXPECT_EQ(processes_after(range, 2, 1), 2);
  EXPECT_EQ(processes_after(range, 2, 60), 6);
}

}  // namespace
